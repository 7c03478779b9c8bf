//! What a report says of a TPM, at the door.

use firstlight_api::measured::Boot;
use firstlight_api::tpm::{Challenge, Claim, Digest, Point, Proof, SALT, Tpm};
use ring::{
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    hkdf::{HKDF_SHA256, Salt},
    rand::SystemRandom,
};

use super::*;

fn point_of(key: &EphemeralPrivateKey) -> Point {
    let point = key.compute_public_key().unwrap();
    Point::new(point.as_ref().try_into().unwrap())
}

/// As a TPM with this key does.
fn answer(mine: EphemeralPrivateKey, challenge: Challenge, claim: &Claim<'_>) -> Digest {
    let theirs = UnparsedPublicKey::new(&ECDH_P256, challenge.point.as_bytes());
    let claimed = claim.bytes(&challenge.point);
    let mut answer = [0; 32];
    agree_ephemeral(mine, &theirs, |secret| {
        let made = Salt::new(HKDF_SHA256, SALT).extract(secret);
        made.expand(&[&claimed], HKDF_SHA256)?.fill(&mut answer)
    })
    .unwrap()
    .unwrap();
    Digest::new(answer)
}

fn key(point: Point, proof: Option<Proof>) -> Tpm {
    Tpm::Key {
        point,
        proof,
        boot: Boot::Unsaid,
    }
}

fn report_with(tpm: &Tpm) -> Value {
    let mut report = report();
    report["tpm"] = serde_json::to_value(tpm).unwrap();
    report
}

impl Fixture {
    /// The directive to a report with this in it.
    async fn told(&self, tpm: &Tpm) -> Directive {
        let (_, text) = answer_of(self, self.signed(REPORT_PATH, report_with(tpm))).await;
        let reply: Reply = serde_json::from_str(&text).unwrap();
        reply.directive
    }

    async fn asked(&self, tpm: &Tpm) -> Challenge {
        match self.told(tpm).await {
            Directive::Prove(challenge) => challenge,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_report_that_names_a_tpm_reaches_the_controller_with_a_proof_alone() {
    let mut box_ = serve().await;
    let mine = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
    let point = point_of(&mine);
    let challenge = box_.asked(&key(point, None)).await;
    let session = box_.fleet.session().to_owned();
    let claim = Claim {
        session: &session,
        boot_mac: "52:54:00:00:00:01",
        boot_id: "a",
        key: box_.key.public(),
        tpm: point,
    };
    let wrong = Some(Proof {
        challenge,
        answer: Digest::new([0; 32]),
    });
    box_.asked(&key(point, wrong)).await;
    assert!(box_.controller.inputs.try_recv().is_err(), "nobody is told");

    let answer = answer(mine, challenge, &claim);
    let proof = Some(Proof { challenge, answer });
    let proved = key(point, proof);
    let request = box_.signed(REPORT_PATH, report_with(&proved));
    let address = box_.address;
    let answering = async {
        let Some(Input::Report { from, answer, .. }) = box_.controller.inputs.recv().await else {
            panic!("a report")
        };
        assert_eq!(from.tpm, Some(point.fingerprint()));
        answer.send(Directive::BootDisk).unwrap();
    };
    let (response, ()) = tokio::join!(send(address, request), answering);
    assert_eq!(response.status(), StatusCode::OK);

    // Somebody has overheard it, and signs it as his own.
    box_.key = Key::new().unwrap();
    box_.asked(&proved).await;
    assert!(box_.controller.inputs.try_recv().is_err(), "nobody is told");
    let counted = box_.text("/metrics").await.1;
    assert!(counted.contains("firstlight_refused_total{why=\"report-tpm-proof\"}"));
}

#[tokio::test]
async fn a_tpm_that_is_no_point_is_refused() {
    let box_ = serve().await;
    for point in [[0; 65], [4; 65]] {
        let point = Point::new(point);
        let tpm = key(point, None);
        let request = box_.signed(REPORT_PATH, report_with(&tpm));
        let (status, text) = answer_of(&box_, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains("no point on P-256"), "{text}");
    }
}

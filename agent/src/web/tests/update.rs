//! Whatever comes as an update, at a box that has no stick to write it to.

use proptest::prelude::*;

use super::*;

async fn post(box_: &Fixture, path: &str, content: Vec<u8>) -> (StatusCode, String) {
    let request = Request::post(format!("/api/v1/update{path}"))
        .header("host", "127.0.0.1")
        .body(Full::from(content))
        .unwrap();
    let response = send(box_.address, request).await;
    let status = response.status();
    (
        status,
        String::from_utf8(body(response).await.to_vec()).unwrap(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_is_sent_is_refused_in_a_sentence(
        path in "/(plan|layers|start|x)?",
        line in "\\{\"layers\": ?\\[(\\{\"name\":\"[a-z]{0,3}\",\"length\":[0-9]{1,22},\"sha256\":\"(ab){32}\"\\},?){0,3}\\](,\"sent\":\\[(\"[a-z]\")?\\])?\\}|.{0,60}",
        noise: Vec<u8>,
        long in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let box_ = serve().await;
            let filler = if long { vec![b' '; 70_000] } else { vec![b'\n'] };
            let content = [line.into_bytes(), filler, noise].concat();
            let (status, said) = post(&box_, &path, content).await;
            assert!(status.is_client_error(), "{path}: {status} {said}");
            assert!(said.len() < 2000 && said.len() > 5, "{said}");
        });
    }
}

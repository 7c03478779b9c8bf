//! The box's account in the BMC of a host, which the host's ramdisk makes: what is written about it, and who wants it. Pure.
//!
//! On the object the annotation [`MADE`] says that there is one, and where: as long as it is there, the account may be. `spec.bmc` is
//! the box's while it is what that annotation says, and a person's as soon as it is anything else.

use std::net::Ipv4Addr;

use firstlight_api::{
    account::{Password, USER},
    bmh::{BareMetalHost, BmcDetails},
    site::BmcAccount,
    status::Problem,
};

use super::{bmc, store::Secret};
use crate::objects::Key;

/// A person's word on an object, stronger than a rule: `create`, `remove`, or `leave` what there is.
pub const WORD: &str = "firstlight.internal/bmc-account";
/// On an object: the address in `spec.bmc` by which the box has an account.
pub const MADE: &str = "firstlight.internal/bmc-account-made";
/// On a Secret: the host whose account it is. Others are never written to.
pub const LABEL: &str = "firstlight.internal/bmc-account-of";

/// What is to become of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredAccount {
    Create,
    /// There may be one, and nobody wants it.
    Remove,
    Nothing,
}

/// `rule`: what site.yaml says of such a server. Another word than the three means nothing.
pub fn desired(object: &BareMetalHost, rule: Option<BmcAccount>) -> DesiredAccount {
    let annotations = &object.metadata.annotations;
    let wanted = match annotations.get(WORD).map(String::as_str) {
        Some("leave") => return DesiredAccount::Nothing,
        Some("create") => true,
        Some("remove") => false,
        _ => rule == Some(BmcAccount::Create),
    };
    match (wanted, annotations.contains_key(MADE)) {
        (true, _) => DesiredAccount::Create,
        (false, true) => DesiredAccount::Remove,
        (false, false) => DesiredAccount::Nothing,
    }
}

/// There may be one, and it is to be taken away before its object goes. A system of somebody else's is not disturbed for that.
pub fn is_owed(object: &BareMetalHost) -> bool {
    let annotations = &object.metadata.annotations;
    let is_left = annotations.get(WORD).is_some_and(|word| word == "leave");
    annotations.contains_key(MADE) && !is_left && !object.spec.externally_provisioned
}

/// What its object says of its BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Nothing,
    /// As the box wrote it.
    Ours,
    /// As somebody else did.
    Theirs,
}

pub fn named(object: &BareMetalHost) -> Named {
    let bmc = object.spec.bmc.as_ref();
    let made = object.metadata.annotations.get(MADE);
    match bmc.filter(|bmc| !bmc.address.is_empty() || !bmc.credentials_name.is_empty()) {
        None => Named::Nothing,
        Some(bmc) if made.is_some_and(|at| *bmc == details(object, at)) => Named::Ours,
        Some(_) => Named::Theirs,
    }
}

/// As in `spec.bmc.address`.
pub fn address(of: Ipv4Addr) -> String {
    format!("ipmi://{of}")
}

/// What the box writes into the spec.
pub fn details(object: &BareMetalHost, address: &str) -> BmcDetails {
    BmcDetails {
        address: address.to_owned(),
        credentials_name: secret_key(object).name,
        disable_certificate_verification: false,
    }
}

/// Beside the host.
pub fn secret_key(object: &BareMetalHost) -> Key {
    let meta = &object.metadata;
    Key::new(&meta.namespace, &format!("{}-bmc-account", meta.name))
}

pub fn secret(password: &Password) -> Secret {
    let pair = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
    Secret::from([pair("username", USER), pair("password", password.reveal())])
}

/// What is to be written about the account of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there.
    Keep {
        address: Ipv4Addr,
        password: Password,
    },
    /// It is gone.
    Forget,
}

/// Why not.
#[derive(Clone, Debug, PartialEq)]
pub enum AccountError {
    /// The BMC does not answer the box.
    Silent,
    /// A passing thing, or a Secret of somebody else.
    Unwritten(Problem),
}

/// An address that is nobody else's: as Ironic is let through to it.
pub fn is_reachable(object: &BareMetalHost, of: Ipv4Addr) -> bool {
    let read = bmc::read(&details(object, &address(of)));
    read.is_ok_and(|bmc| bmc.endpoint().is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::bmh::BareMetalHostSpec;

    use super::*;

    fn object() -> BareMetalHost {
        BareMetalHost::new("n1", "metal3", BareMetalHostSpec::default())
    }

    #[test]
    fn a_persons_word_is_stronger_than_a_rule() {
        let create = Some(BmcAccount::Create);
        for (word, made, rule, wanted) in [
            ("", false, None, DesiredAccount::Nothing),
            ("", false, create, DesiredAccount::Create),
            ("", true, create, DesiredAccount::Create),
            ("", true, None, DesiredAccount::Remove),
            ("create", false, None, DesiredAccount::Create),
            ("remove", true, create, DesiredAccount::Remove),
            ("remove", false, create, DesiredAccount::Nothing),
            ("perhaps", false, create, DesiredAccount::Create),
            ("leave", true, None, DesiredAccount::Nothing),
            ("leave", true, create, DesiredAccount::Nothing),
        ] {
            let mut object = object();
            let annotations = &mut object.metadata.annotations;
            if !word.is_empty() {
                annotations.insert(WORD.into(), word.into());
            }
            if made {
                annotations.insert(MADE.into(), "ipmi://10.0.0.9".into());
            }
            assert_eq!(desired(&object, rule), wanted, "{word:?} {made} {rule:?}");
            assert_eq!(is_owed(&object), made && word != "leave", "{word:?}");
        }
    }

    #[test]
    fn what_a_person_changes_is_the_persons() {
        let mut object = object();
        assert_eq!(named(&object), Named::Nothing);
        let ours = details(&object, "ipmi://10.0.0.9");
        object.spec.bmc = Some(ours.clone());
        assert_eq!(
            named(&object),
            Named::Theirs,
            "nothing says that it was made"
        );
        let annotations = &mut object.metadata.annotations;
        annotations.insert(MADE.into(), "ipmi://10.0.0.9".into());
        assert_eq!(named(&object), Named::Ours);
        object.spec.bmc = Some(BmcDetails {
            address: "redfish://10.0.0.9/redfish/v1/Systems/1".into(),
            ..ours
        });
        assert_eq!(named(&object), Named::Theirs);
        object.spec.bmc = Some(BmcDetails::default());
        assert_eq!(named(&object), Named::Nothing);
    }

    #[test]
    fn an_address_that_cannot_be_a_bmcs_is_none() {
        for (address, good) in [
            ([10, 0, 0, 9], true),
            ([169, 254, 0, 17], false),
            ([127, 0, 0, 1], false),
            ([0, 0, 0, 0], false),
        ] {
            assert_eq!(is_reachable(&object(), address.into()), good, "{address:?}");
        }
    }
}

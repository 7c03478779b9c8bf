//! What local-path-provisioner wants of its helper.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::USAGE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Create,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub action: Action,
    /// Of all volumes of this disk.
    pub base: PathBuf,
    /// The volume's own folder in it.
    pub name: String,
    pub bytes: u64,
}

/// Whom a volume is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
}

impl Order {
    pub fn parse(words: &[String]) -> Result<Self> {
        let value = |flag: &str| {
            let mut pairs = words.chunks_exact(2);
            let pair = pairs.find(|pair| pair[0] == flag);
            pair.map(|pair| pair[1].as_str()).context(USAGE)
        };
        let action = match value("-a")? {
            "create" => Action::Create,
            "delete" => Action::Delete,
            other => bail!("-a {other:.20}: neither `create` nor `delete`"),
        };
        let mode = value("-m")?;
        ensure!(
            mode == "Filesystem" || action == Action::Delete,
            "volumes of this class are folders: `volumeMode: {mode:.20}` cannot be had"
        );
        let path = Path::new(value("-p")?);
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} names no folder", path.display()))?;
        // What is kept of them is called so.
        ensure!(
            !name.starts_with('.'),
            "{name}: no volume begins with a dot"
        );
        let base = path.parent().filter(|base| base.is_absolute());
        let bytes = value("-s")?;
        Ok(Self {
            action,
            base: base.context("-p wants an absolute path")?.to_owned(),
            name: name.to_owned(),
            bytes: bytes
                .parse()
                .with_context(|| format!("-s {bytes:.20}: not a number of bytes"))?,
        })
    }

    /// `VOLUME_NAMESPACE_CLAIM`; no name in Kubernetes has a `_`.
    pub fn claim(&self) -> Option<Claim> {
        let [_, namespace, name] = self.name.split('_').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Claim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(path: &str, mode: &str) -> Vec<String> {
        ["-p", path, "-s", "4096", "-m", mode, "-a", "create"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn what_the_provisioner_says_is_an_order_for_a_claim() {
        let order = Order::parse(&words("/v/pvc-1_default_data", "Filesystem")).unwrap();
        assert_eq!(
            order,
            Order {
                action: Action::Create,
                base: "/v".into(),
                name: "pvc-1_default_data".to_owned(),
                bytes: 4096,
            }
        );
        let claim = order.claim().unwrap();
        assert_eq!(
            (claim.namespace.as_str(), claim.name.as_str()),
            ("default", "data")
        );
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for (path, mode, why) in [
            ("/v/.volumes", "Filesystem", "begins with a dot"),
            ("v/a", "Filesystem", "an absolute path"),
            ("/", "Filesystem", "names no folder"),
            ("/v/..", "Filesystem", "names no folder"),
            ("/v/a", "Block", "`volumeMode: Block` cannot be had"),
        ] {
            let refused = format!("{:#}", Order::parse(&words(path, mode)).unwrap_err());
            assert!(refused.contains(why), "{path}: {refused}");
        }
        assert!(Order::parse(&[]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_words_break_it(words in proptest::collection::vec("(-[psma]|/[a-z_./]{0,20}|[0-9]{0,22}|.{0,8})", 0..10)) {
            if let Ok(order) = Order::parse(&words) {
                proptest::prop_assert!(!order.name.contains('/') && order.base.is_absolute());
                drop(order.claim());
            }
        }
    }
}

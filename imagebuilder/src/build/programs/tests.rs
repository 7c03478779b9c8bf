use super::*;

#[test]
fn versions_come_from_go_mod_and_not_from_longer_names() {
    let text =
        "require (\n\tk8s.io/kubernetes-extra v9.9.9\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n";
    assert_eq!(required_version(text, "k8s.io/kubernetes"), Some("v1.36.3"));
    assert_eq!(
        required_version("require a/b v1.0.0\n", "a/b"),
        Some("v1.0.0")
    );
    assert_eq!(required_version(text, "k8s.io/api"), None);
}

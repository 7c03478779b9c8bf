#![allow(clippy::unwrap_used)]

use firstlight_api::{site::InstallPolicy, status::SiteStatus};
use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::*;
use crate::status;

const GOOD: &str = "name: lab\nprovisioning: {address: 10.9.0.1/24}\ninstall: wipe\n";

#[expect(clippy::unnecessary_wraps, reason = "as a read answers")]
fn file(text: &str) -> io::Result<Vec<u8>> {
    Ok(text.as_bytes().to_vec())
}

fn earlier(text: &str, installed: bool) -> Earlier {
    Earlier {
        site: Some(parse_site(text).unwrap()),
        installed,
    }
}

#[test]
fn without_an_earlier_file_a_bad_one_installs_nothing_and_leases_nothing() {
    for read in [file("nmae: lab\n"), Err(io::ErrorKind::NotFound.into())] {
        let (site, problems) = judge(&read, &Earlier::default());
        assert_eq!(
            (site.install, site.standing),
            (InstallPolicy::Never, Standing::Unknown)
        );
        assert!(
            problems.len() == 1 && problems[0].what.contains("no server is installed"),
            "{problems:?}"
        );
    }
    assert_eq!(
        judge(&file(""), &Earlier::default()),
        (SiteConfig::default(), vec![])
    );
}

#[test]
fn with_an_earlier_file_a_bad_one_changes_nothing_but_that_nothing_is_installed() {
    let bad = file("name: lab\nprovisioning: {adress: 10.9.0.1/24}\n");
    for read in [bad, Err(io::ErrorKind::NotFound.into())] {
        let (site, problems) = judge(&read, &earlier(GOOD, false));
        assert_eq!(site, parse_site(GOOD).unwrap().as_last_good());
        let mac = firstlight_api::site::MacAddr::new([0x52, 0x54, 0, 0, 0, 1]).unwrap();
        assert_eq!(site.install_policy(mac, None), InstallPolicy::Never);
        assert!(problems[0].what.contains("goes on"), "{problems:?}");
    }
    let (_, told) = judge(&file("a: 1\nb: 2\n"), &earlier(GOOD, false));
    assert!(told[0].what.contains("line 1, column 1") && told[1].what.contains("line 2"));
}

#[test]
fn a_file_that_was_emptied_is_not_taken_for_the_wish_of_a_person() {
    for empty in ["", "\0\0\0\0", "\n \n"] {
        let (site, problems) = judge(&file(empty), &earlier(GOOD, false));
        assert_eq!(site.standing, Standing::LastGood, "{empty:?}");
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
    let meant = judge(&file("# empty\n"), &earlier(GOOD, false));
    assert_eq!(meant, (SiteConfig::default(), vec![]));
    let as_before = judge(&file(""), &earlier("# nothing yet\n", true));
    assert_eq!(as_before, (SiteConfig::default(), vec![]));
}

#[test]
fn the_file_of_another_site_is_not_used_while_servers_are_installed() {
    for other in [
        "name: lab\nprovisioning: {address: 10.9.1.1/24}\n",
        "name: lab\nprovisioning: {address: 10.9.0.1/16}\n",
        // Their systems ask at the old address.
        "name: lab\nprovisioning: {address: 10.9.0.2/24}\n",
        "name: lab-2\nprovisioning: {address: 10.9.0.1/24}\n",
    ] {
        let (site, problems) = judge(&file(other), &earlier(GOOD, true));
        assert_eq!(site.standing, Standing::LastGood, "{other}");
        assert!(problems[0].next.contains("sudo rm"), "{problems:?}");
        let (site, _) = judge(&file(other), &earlier(GOOD, false));
        assert_eq!(site.standing, Standing::Current, "nothing is lost: {other}");
    }
    let grown = "name: lab\nprovisioning: {address: 10.9.0.1/24}\nsshKeys: []\n";
    assert_eq!(judge(&file(grown), &earlier(GOOD, true)).1, []);
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_only_a_file_without_a_word_said_is_acted_on(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        for earlier in [Earlier::default(), earlier(GOOD, true)] {
            let (site, problems) = judge(&Ok(bytes.clone()), &earlier);
            prop_assert_eq!(site.standing == Standing::Current, problems.is_empty());
        }
    }
}

/// A box below a folder.
struct Root {
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

struct Running {
    task: JoinHandle<Result<()>>,
    site: watch::Receiver<Option<Arc<SiteConfig>>>,
    status: watch::Receiver<SiteStatus>,
}

impl Root {
    fn new() -> Self {
        let root = Self {
            dir: tempfile::tempdir().unwrap(),
            stop: CancellationToken::new(),
        };
        let paths = root.paths();
        fs::create_dir_all(paths.agent_state()).unwrap();
        fs::create_dir_all(paths.run()).unwrap();
        root
    }

    fn paths(&self) -> Paths {
        Paths::new(self.dir.path())
    }

    fn put(&self, text: &str) {
        fs::create_dir_all(self.paths().site_partition()).unwrap();
        fs::write(self.paths().site_yaml(), text).unwrap();
    }

    fn start(&self) -> Running {
        let (sender, status, owner) = status::channel("1");
        tokio::spawn(status::own(owner, self.stop.clone()));
        let publish = watch::Sender::new(None);
        let site = publish.subscribe();
        let task = tokio::spawn(run(self.paths(), sender, publish, self.stop.clone()));
        Running { task, site, status }
    }
}

impl Running {
    async fn site(&mut self) -> Arc<SiteConfig> {
        let site = self.site.wait_for(Option::is_some).await.unwrap();
        site.clone().unwrap()
    }

    async fn problem(&mut self) -> String {
        let told = self.status.wait_for(|status| !status.problems.is_empty());
        told.await.unwrap().problems[0].what.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_comes_late_is_taken_up_by_a_new_start() {
    let root = Root::new();
    root.put(GOOD);
    let mut first = root.start();
    assert_eq!(first.site().await.standing, Standing::Current);
    first.task.abort();

    fs::remove_dir_all(root.paths().site_partition()).unwrap();
    let mut second = root.start();
    let site = second.site().await;
    assert_eq!(
        (site.name.as_str(), site.standing),
        ("lab", Standing::LastGood)
    );
    assert!(second.problem().await.contains("cannot be read"));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!second.task.is_finished(), "nothing has changed");
    root.put(GOOD);
    let ended = second.task.await.unwrap().unwrap_err();
    assert!(ended.to_string().contains("anew"), "{ended}");
    assert_eq!(root.start().site().await.standing, Standing::Current);
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_is_never_kept_and_a_good_one_always() {
    let root = Root::new();
    root.put("name: [");
    assert_eq!(root.start().site().await.standing, Standing::Unknown);
    assert!(!root.paths().last_site().exists());
    root.put(GOOD);
    root.start().site().await;
    assert_eq!(fs::read_to_string(root.paths().last_site()).unwrap(), GOOD);
    root.put("name: [");
    assert_eq!(root.start().site().await.standing, Standing::LastGood);
    assert_eq!(fs::read_to_string(root.paths().last_site()).unwrap(), GOOD);
    // A kept file that is damaged is as none.
    fs::write(root.paths().last_site(), "\u{1}").unwrap();
    assert_eq!(root.start().site().await.standing, Standing::Unknown);
    root.stop.cancel();
}

#[test]
fn a_file_that_is_far_too_large_is_not_read_whole() {
    let root = Root::new();
    root.put("");
    let file = File::create(root.paths().site_yaml()).unwrap();
    file.set_len(1 << 32).unwrap();
    assert!(read(&root.paths().site_yaml()).is_err());
}

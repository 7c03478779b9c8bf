//! More hosts shall be given back than one mistake may take: the first few go, the others wait for their names.

use firstlight_api::{
    bmh::{BareMetalHostSpec, FINALIZER, Image, ObjectReference},
    verb::{CONFIRM_ANNOTATION, MOST_DEPARTURES},
};
use firstlight_ironic::Node;
use serde_json::json;

use super::{super::ledger::Deployment, *};

const HOSTS: u8 = 7;
const WALL: i64 = 1_800_000_000;

fn mac_of(number: u8) -> MacAddr {
    MacAddr::new([0x52, 0x54, 0, 0, 0, number]).unwrap()
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn image() -> Image {
    Image {
        url: "http://172.22.0.1/images/other.raw.zst".into(),
        checksum: "cd".repeat(32),
        ..Image::default()
    }
}

/// A box with servers that run, and what is on its disk.
struct Rack {
    hosts: Hosts,
    disk: BTreeMap<MacAddr, Ledger>,
    objects: Vec<BareMetalHost>,
    now: Now,
    held: Vec<String>,
    /// Who was told to go.
    gone: Vec<MacAddr>,
}

impl Rack {
    fn new() -> Self {
        let settings = settings(SitePolicy::Cluster);
        let deployment = |number: u8| Deployment {
            id: Some(firstlight_api::order::DeploymentId::new([number; 16])),
            image: image(),
            delivered: true,
            written: true,
            shown: true,
            ..Deployment::default()
        };
        let ledger = |number: u8| Ledger {
            has_object: true,
            deployment: Some(deployment(number)),
            ..Ledger::default()
        };
        let disk = (0..HOSTS).map(|number| (mac_of(number), ledger(number)));
        let disk: BTreeMap<_, _> = disk.collect();
        let object = |number: u8| {
            let spec = BareMetalHostSpec {
                online: true,
                boot_mac_address: mac_of(number).to_string(),
                image: Some(image()),
                consumer_ref: Some(ObjectReference {
                    kind: "Metal3Machine".into(),
                    name: format!("m{number}"),
                    ..ObjectReference::default()
                }),
                ..BareMetalHostSpec::default()
            };
            let mut object = BareMetalHost::new(&name(number), "default", spec);
            object.metadata.finalizers.push(FINALIZER.to_owned());
            object
        };
        let mut rack = Self {
            hosts: hosts(&settings, &disk),
            disk,
            objects: (0..HOSTS).map(object).collect(),
            now: Now {
                up: Duration::from_secs(1000),
                wall: WALL,
            },
            held: Vec::new(),
            gone: Vec::new(),
        };
        rack.come_up();
        rack
    }

    fn come_up(&mut self) {
        let box_http = "http://172.22.0.1".to_owned();
        self.take(Event::Ironic { box_http });
        self.look();
    }

    fn restart(&mut self) {
        self.hosts = hosts(&settings(SitePolicy::Cluster), &self.disk);
        self.held.clear();
        self.come_up();
    }

    fn take(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.hosts.fold(event, self.now) {
                match effect {
                    Effect::Save { mac, ledger } => {
                        self.disk.insert(mac, *ledger);
                        events.push(Event::Saved {
                            mac,
                            result: Ok(()),
                        });
                    }
                    Effect::Held(names) => self.held = names,
                    // Over SSH it is told to come back.
                    Effect::Restart { mac, into, .. } => {
                        if !self.gone.contains(&mac) {
                            self.gone.push(mac);
                        }
                        let result = Ok(());
                        events.push(Event::Restarted { mac, into, result });
                    }
                    Effect::Act(act) => panic!("nothing is told to Ironic: {act:?}"),
                    _ => {}
                }
            }
        }
    }

    /// At Ironic, where all of them stay `active`, and at the objects.
    fn look(&mut self) {
        let node = |number: u8| -> Node {
            serde_json::from_value(json!({
                "uuid": node_uuid(mac_of(number)), "name": name(number), "provision_state": "active", "power_state": "power on",
                "extra": {"firstlight_mac": mac_of(number).to_string()},
                "target_provision_state": null, "last_error": null, "reservation": null,
            }))
            .unwrap()
        };
        let nodes = (0..HOSTS).map(node).collect();
        let asked = self.now.up;
        self.take(Event::Nodes { nodes, asked });
        let objects = self.objects.iter().cloned().map(Arc::new);
        self.take(Event::Objects(objects.collect()));
        self.take(Event::Tick);
    }

    fn pass(&mut self, seconds: u64) {
        self.now.up += Duration::from_secs(seconds);
        self.now.wall += i64::try_from(seconds).unwrap();
        self.look();
    }

    fn confirm(&mut self, number: u8, value: &str) {
        let said = (CONFIRM_ANNOTATION.to_owned(), value.to_owned());
        let object = &mut self.objects[usize::from(number)];
        object.metadata.annotations.extend([said]);
    }
}

type Error = fn(&mut BareMetalHost);

/// `kubectl delete bmh --all`, and whoever takes all images away: a script, or Cluster API that deletes machines.
const MISTAKES: [Error; 2] = [
    |object| object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".into()),
    |object| object.spec.image = None,
];

#[test]
fn of_all_hosts_that_shall_go_at_once_a_few_do_and_the_others_wait_for_their_names() {
    for mistake in MISTAKES {
        let mut rack = Rack::new();
        assert!(rack.held.is_empty() && rack.gone.is_empty());
        rack.objects.iter_mut().for_each(mistake);
        rack.look();
        assert_eq!(rack.gone.len(), MOST_DEPARTURES);
        let waiting: Vec<String> = (3..HOSTS).map(name).collect();
        assert_eq!(rack.held, waiting, "they are named");

        // Neither a restart nor time is a person's word.
        rack.restart();
        assert_eq!((rack.gone.len(), &rack.held), (3, &waiting));
        rack.pass(24 * 3600);
        rack.restart();
        assert_eq!((rack.gone.len(), &rack.held), (3, &waiting));

        // `kubectl annotate bmh --all` says one name.
        for number in 0..HOSTS {
            rack.confirm(number, "n4");
        }
        rack.look();
        assert_eq!(rack.gone.len(), 4);
        assert_eq!(rack.held, ["n3", "n5", "n6"]);
        for number in [3, 5, 6] {
            rack.confirm(number, &name(number));
        }
        rack.look();
        assert_eq!(rack.gone.len(), usize::from(HOSTS));
        assert!(rack.held.is_empty());
    }
}

/// Somebody takes the finalizer off a deleted object: that is made again around what the disk holds.
#[test]
fn an_object_that_was_deleted_by_mistake_can_go_without_its_server() {
    let mut rack = Rack::new();
    rack.objects.iter_mut().for_each(MISTAKES[0]);
    rack.look();
    assert_eq!(rack.held, ["n3", "n4", "n5", "n6"]);
    rack.objects.retain(|object| object.metadata.name != "n6");
    rack.pass(60);
    assert_eq!(rack.held, ["n3", "n4", "n5"]);
    assert_eq!(rack.gone.len(), MOST_DEPARTURES);
    assert!(rack.disk[&mac_of(6)].written().is_some() && !rack.disk[&mac_of(6)].removed);
}

#[test]
fn who_left_counts_also_when_it_is_gone_and_forgotten_and_for_ten_minutes() {
    let mut rack = Rack::new();
    for number in 100..103 {
        let mut ledger = Ledger {
            deployment: Some(Deployment::default()),
            ..Ledger::default()
        };
        ledger.leaves(WALL);
        assert!(ledger.may_leave());
        rack.disk.insert(mac_of(number), ledger.once_removed());
    }
    rack.restart();
    rack.objects[0].spec.image = None;
    rack.look();
    assert_eq!((rack.gone.len(), rack.held.len()), (0, 1));
    rack.pass(601);
    rack.objects[1].spec.image = None;
    rack.look();
    assert_eq!(rack.gone, [mac_of(1)], "the one that had to wait waits on");
    assert_eq!(rack.held, ["n0"]);
}

#[test]
fn hosts_that_leave_one_after_the_other_wait_for_nobody() {
    let mut rack = Rack::new();
    for number in 0..HOSTS {
        rack.objects[usize::from(number)].spec.image = None;
        rack.pass(250);
        assert_eq!(rack.gone.len(), usize::from(number) + 1);
        rack.restart();
    }
    assert!(rack.held.is_empty());
}

#[test]
fn who_gets_its_image_back_while_it_waits_stays_and_is_not_waited_for_any_more() {
    let mut rack = Rack::new();
    for object in &mut rack.objects {
        object.spec.image = None;
    }
    rack.look();
    assert_eq!(rack.held.len(), 4);
    for object in &mut rack.objects[3..] {
        object.spec.image = Some(image());
    }
    rack.look();
    assert_eq!((rack.gone.len(), rack.held.len()), (3, 0));
    // One of them leaves later, as everybody may.
    rack.pass(3600);
    rack.objects[6].spec.image = None;
    rack.look();
    assert_eq!((rack.gone.len(), rack.held.len()), (4, 0));

    // Also those that could have gone, and were not torn down yet, are asked about the next time.
    for change in [|| Some(image()), || None] {
        for object in &mut rack.objects {
            object.spec.image = change();
        }
        rack.gone.clear();
        rack.pass(3600);
    }
    assert_eq!((rack.gone.len(), rack.held.len()), (3, 4));
}

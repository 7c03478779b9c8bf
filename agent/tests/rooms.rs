//! The rooms of `agent/src` are its top-level modules. Each stands on a floor and may use only rooms of the floors below it;
//! within a room, files use each other without a circle. A file and those below it (`a.rs`, `a/b.rs`) are one to others, and may
//! share what they have.
//!
//! Tests may use what they like. To add a room: its name on its floor in [`FLOORS`].
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// From the ground up. `lib.rs`, which knows everybody, stands above.
const FLOORS: [&[&str]; 6] = [
    // Tools that know nothing of a site.
    &[
        "child",
        "clock",
        "encryption",
        "files",
        "journal",
        "keep",
        "notify",
        "objects",
        "options",
        "paths",
        "pieces",
        "workload",
    ],
    // What is told, who is who, and plans.
    &[
        "capi",
        "helper",
        "liveness",
        "pki",
        "sources",
        "ssh",
        "start_line",
        "state_versions",
        "status",
    ],
    // What others stand on: the network, the store, what is known of hosts and clusters.
    &[
        "backups",
        "clusters",
        "console",
        "damage",
        "doors",
        "fleet",
        "hardware",
        "host_networks",
        "ironic_files",
        "machines",
        "network",
        "people",
        "reconcile",
        "registry_files",
        "state",
        "store",
    ],
    // One concern each.
    &[
        "boot_files",
        "containers",
        "dhcp",
        "edge",
        "hosts",
        "kubernetes",
        "monitoring",
        "packages",
        "page_certificate",
        "pools",
        "provider",
        "remediation",
        "software",
        "timekeeper",
        "update",
        "uplink",
        "warnings",
    ],
    &["addons", "site_file", "tftp", "upgrades", "web"],
    // The order in which the box comes up.
    &["bring_up"],
];

/// A module, as a path from the crate's root.
type Module = Vec<String>;

/// Who uses whom, with an example of how.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// The crate as it is written.
#[derive(Default)]
struct House {
    files: BTreeMap<Module, Vec<String>>,
}

impl House {
    fn read(root: &Path) -> Self {
        let mut house = Self::default();
        house.enter(&root.join("lib.rs"), root, Vec::new());
        house
    }

    /// Follows `mod` from file to file, so that what only tests know is left out.
    fn enter(&mut self, file: &Path, folder: &Path, module: Module) {
        let text = fs::read_to_string(file).unwrap();
        let tokens = tokens(&text);
        for name in children(&tokens) {
            let below: PathBuf = folder.join(&name);
            let flat = below.with_extension("rs");
            let file = if flat.exists() {
                flat
            } else {
                below.join("mod.rs")
            };
            let child = [module.clone(), vec![name]].concat();
            self.enter(&file, &below, child);
        }
        self.files.insert(module, tokens);
    }

    /// Every path that a file names, absolute: the file that it leads to, and what is named there.
    fn references(&self, from: &Module) -> BTreeSet<(Module, Option<String>)> {
        let paths = paths(&self.files[from]).into_iter();
        let absolute = paths.filter_map(|path| self.resolve(from, &path));
        absolute.filter(|(to, _)| to != from).collect()
    }

    fn resolve(&self, from: &Module, path: &[String]) -> Option<(Module, Option<String>)> {
        let supers = path.iter().take_while(|word| *word == "super").count();
        let mut absolute = match path.first()?.as_str() {
            // As in `pub(crate)`.
            "crate" if path.len() == 1 => return None,
            "crate" => path[1..].to_vec(),
            "super" => [&from[..from.len().checked_sub(supers)?], &path[supers..]].concat(),
            "self" => [from, &path[1..]].concat(),
            child => {
                let below = [from.clone(), vec![child.to_owned()]].concat();
                self.files.contains_key(&below).then_some(())?;
                [from, path].concat()
            }
        };
        let mut rest = None;
        while !self.files.contains_key(&absolute) {
            rest = absolute.pop();
        }
        Some((absolute, rest))
    }

    fn between_rooms(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for from in self.files.keys().filter(|module| !module.is_empty()) {
            let own = arrows.entry(from[0].clone()).or_default();
            for (to, item) in self.references(from) {
                let room = to.first().cloned().unwrap_or_else(|| "lib".to_owned());
                if room != from[0] {
                    let how = format!("{} uses {}", title(from), full(&to, item.as_ref()));
                    own.entry(room).or_insert(how);
                }
            }
        }
        arrows
    }

    fn within_rooms(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for from in self.files.keys().filter(|module| !module.is_empty()) {
            let own = arrows.entry(title(from)).or_default();
            for (to, item) in self.references(from) {
                if to.first() == from.first() && !from.starts_with(&to) {
                    let how = format!("{} uses {}", title(from), full(&to, item.as_ref()));
                    own.entry(title(&to)).or_insert(how);
                }
            }
        }
        arrows
    }
}

fn title(module: &Module) -> String {
    module.join("::")
}

fn full(module: &Module, item: Option<&String>) -> String {
    let words = module.iter().chain(item);
    words.cloned().collect::<Vec<_>>().join("::")
}

/// Words and marks, without comments, texts and what `#[cfg(test)]` stands before.
fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = literal(rest, all.last().map(String::as_str)) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            all.push(rest[..length].to_owned());
            length
        } else if rest.starts_with("::") {
            all.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                all.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    without_tests(&all)
}

/// The length of a text or a letter in quotes. `r"…"` and `r#"…"#` come with their `r` read already.
fn literal(rest: &str, before: Option<&str>) -> Option<usize> {
    let raw = matches!(before, Some("r" | "br"));
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if raw && rest[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = &rest[hashes + 1..];
        return Some(hashes + 1 + body.find(&end).unwrap_or(body.len()) + end.len());
    }
    let quote = rest.chars().next()?;
    if quote == '\'' {
        // A lifetime has no second quote.
        let mut letters = rest.char_indices().skip(1);
        let (_, letter) = letters.next()?;
        let end = letters.find(|(_, letter)| *letter == '\'')?.0;
        return (letter == '\\' || end == 1 + letter.len_utf8()).then(|| {
            let escaped = rest[1..].starts_with("\\'");
            end + 1 + usize::from(escaped)
        });
    }
    if quote != '"' {
        return None;
    }
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, letter)| {
        let ends = *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    Some(end.map_or(rest.len(), |(at, _)| at + 1))
}

fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut left = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
        if !tokens[at..].iter().take(attribute.len()).eq(attribute) {
            left.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += attribute.len();
        let mut depth = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.as_str() {
                "{" => depth += 1,
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                ";" if depth == 0 => break,
                _ => {}
            }
        }
    }
    left
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Names after `mod` with a file of their own.
fn children(tokens: &[String]) -> Vec<String> {
    let declared = tokens
        .windows(3)
        .filter(|three| three[0] == "mod" && three[2] == ";");
    declared.map(|three| three[1].clone()).collect()
}

/// All paths, those of `use` one by one.
fn paths(tokens: &[String]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_start = is_name(&tokens[at]);
        at = if is_start {
            branch(tokens, at, &[], &mut all)
        } else {
            at + 1
        };
    }
    all
}

/// One path, or a tree of them as `use` has it, below `stem`; returns where it ends.
fn branch(tokens: &[String], mut at: usize, stem: &[String], all: &mut Vec<Vec<String>>) -> usize {
    let mut path = stem.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") if path.len() > stem.len() || !stem.is_empty() => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = branch(tokens, at, &path, all);
                }
                return at + 1;
            }
            Some("self") if path.len() > 1 => {}
            Some(name) if is_name(name) => path.push(name.to_owned()),
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    let is_tree = !stem.is_empty();
    all.push(path);
    // The comma, or `as` and a name.
    while is_tree && tokens.get(at).is_some_and(|token| token != "}") {
        at += 1;
        if tokens[at - 1] == "," {
            break;
        }
    }
    at
}

/// One circle, each arrow with its example.
fn circle(arrows: &Arrows) -> Option<String> {
    fn walk<'a>(
        arrows: &'a Arrows,
        at: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<String> {
        if let Some(first) = way.iter().position(|seen| *seen == at) {
            let ring: Vec<&str> = way[first..].iter().copied().chain([at]).collect();
            let steps = ring.windows(2).map(|two| arrows[two[0]][two[1]].as_str());
            return Some(steps.collect::<Vec<_>>().join(", "));
        }
        if !done.insert(at) {
            return None;
        }
        way.push(at);
        let next = arrows.get(at).into_iter().flatten();
        let found = next
            .map(|(to, _)| walk(arrows, to, way, done))
            .find(Option::is_some);
        way.pop();
        found.flatten()
    }
    let mut done = BTreeSet::new();
    arrows
        .keys()
        .find_map(|from| walk(arrows, from, &mut Vec::new(), &mut done))
}

fn house() -> House {
    House::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn each_room_uses_only_rooms_of_the_floors_below_it() {
    let arrows = house().between_rooms();
    let floor = |room: &str| FLOORS.iter().position(|floor| floor.contains(&room));
    let mut wrong: Vec<String> = Vec::new();
    for (from, uses) in &arrows {
        let Some(own) = floor(from) else {
            wrong.push(format!("{from} stands on no floor"));
            continue;
        };
        let upward = uses
            .iter()
            .filter(|(to, _)| floor(to).is_none_or(|other| other >= own));
        wrong.extend(upward.map(|(to, how)| format!("{from} may not use {to}: {how}")));
    }
    assert!(
        wrong.is_empty(),
        "{}\ncircle: {:?}",
        wrong.join("\n"),
        circle(&arrows)
    );
}

#[test]
fn the_files_of_a_room_use_each_other_in_no_circle() {
    let found = circle(&house().within_rooms());
    assert!(found.is_none(), "a circle: {}", found.unwrap_or_default());
}

#[test]
fn a_circle_is_found_and_a_test_is_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c; #[cfg(test)] mod tests;");
    write(
        "a.rs",
        "use crate::{b::{self, B}, c::C}; // crate::nothing::here",
    );
    write(
        "b.rs",
        "#[cfg(test)] mod tests { use crate::a::A; } fn f() { \"crate::a\"; }",
    );
    write("c.rs", "fn f() { println!(\"{}\", crate::b::g()); }");
    let house = House::read(folder.path());
    assert_eq!(circle(&house.between_rooms()), None);
    write("b.rs", "fn f() { go(|| super::a::g()); }");
    let house = House::read(folder.path());
    assert_eq!(
        circle(&house.between_rooms()).unwrap(),
        "a uses b, b uses a::g"
    );
}

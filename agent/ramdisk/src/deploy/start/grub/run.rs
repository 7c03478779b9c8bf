//! GRUB's scripts, run as far as they decide what is started: variables, conditions, `search`, menus, `linux` and `initrd`.
//! Everything else (fonts, modules, screens) does nothing, successfully.

use std::collections::BTreeMap;

use super::super::bls;
use super::super::system::{Entry, EntryError, Location, System};
use super::script::{self, Node, Piece, Word, plain};

mod commands;

/// Commands that are run in all, so that scripts that include each other end.
const MOST_STEPS: usize = 20_000;
const MOST_DEPTH: usize = 16;
const LONGEST_VALUE: usize = 4096;
const MOST_ENTRIES: usize = 512;
/// A configuration for many kernels has some hundred kilobytes.
pub const LONGEST_CONFIG: u64 = 1 << 20;

/// One line of a menu.
#[derive(Clone, Debug)]
pub struct Item {
    title: String,
    id: String,
    does: Does,
}

#[derive(Clone, Debug)]
enum Does {
    Script {
        body: Vec<Node>,
        is_submenu: bool,
    },
    /// A file of the Boot Loader Specification, whose kernel is on the volume.
    Start {
        entry: bls::Entry,
        volume: usize,
    },
}

pub struct Shell<'a> {
    system: &'a System,
    variables: BTreeMap<String, String>,
    functions: BTreeMap<String, Vec<Node>>,
    menu: Vec<Item>,
    entry: Entry,
    /// A command that starts something else than Linux.
    other: Option<String>,
    steps: usize,
    status: bool,
}

/// What the configuration at `place` starts if nobody touches a key.
pub fn choose(system: &System, place: &Location) -> Result<Entry, EntryError> {
    let mut shell = Shell::new(system, place);
    shell.include(place, 0)?;
    for depth in 0..MOST_DEPTH {
        if shell.menu.is_empty() {
            break;
        }
        let item = shell.default_item(depth);
        match item.does {
            Does::Start { entry, volume } => {
                shell.entry = shell.of_bls(&entry, volume)?;
                break;
            }
            Does::Script { body, is_submenu } => {
                shell.set("chosen", &item.title);
                shell.menu.clear();
                shell.run(&body, 0)?;
                if is_submenu && shell.menu.is_empty() {
                    return Err(EntryError::unclear("GRUB's default is an empty submenu"));
                }
            }
        }
    }
    if let Some(other) = shell.other {
        let why = format!("GRUB's default starts by `{other}`, not by a Linux kernel of its own");
        return Err(EntryError::Unclear(why));
    }
    Ok(shell.entry)
}

impl<'a> Shell<'a> {
    fn new(system: &'a System, place: &Location) -> Self {
        let mut shell = Self {
            system,
            variables: BTreeMap::new(),
            functions: BTreeMap::new(),
            menu: Vec::new(),
            entry: Entry::default(),
            other: None,
            steps: 0,
            status: true,
        };
        let device = shell.device(place.volume);
        let folder = place.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        shell.set("prefix", &format!("({device}){folder}"));
        shell.set("root", &device);
        shell.set("cmdpath", &format!("({device}){folder}"));
        let (platform, cpu) = if system.is_efi {
            ("efi", "x86_64")
        } else {
            ("pc", "i386")
        };
        shell.set("grub_platform", platform);
        shell.set("grub_cpu", cpu);
        for feature in [
            "feature_default_font_path",
            "feature_menuentry_id",
            "feature_menuentry_options",
            "feature_200_final",
            "feature_ntldr",
            "feature_platform_search_hint",
            "feature_all_video_module",
            "feature_timeout_style",
            "feature_chainloader_bpb",
            "feature_nativedisk_cmd",
        ] {
            shell.set(feature, "y");
        }
        shell
    }

    /// The name that GRUB may have for it; only the number counts when it is read back.
    fn device(&self, volume: usize) -> String {
        let number = self.system.volumes.get(volume).map_or(0, |it| it.number);
        format!("hd0,gpt{number}")
    }

    fn set(&mut self, name: &str, value: &str) {
        let value: String = value.chars().take(LONGEST_VALUE).collect();
        self.variables.insert(name.to_owned(), value);
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    /// Of `hd0,gpt3`, `hd1,msdos3` or `,3`.
    fn volume(&self, device: &str) -> Result<usize, EntryError> {
        let partition = device.split_once(',').map_or("", |(_, rest)| rest);
        let digits = partition.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let number: Option<u32> = digits.parse().ok();
        let found = self.system.find(|it| Some(it.number) == number);
        found.ok_or_else(|| {
            let unread = match self.system.unread.as_slice() {
                [] => String::new(),
                unread => format!(" (it cannot read {})", unread.join(", ")),
            };
            EntryError::Unclear(format!(
                "GRUB goes on to `{device}`, which is no file system that the ramdisk can read{unread}"
            ))
        })
    }

    /// `(DEVICE)/PATH`, or a path on `$root`.
    pub(super) fn place(&self, path: &str) -> Result<Location, EntryError> {
        let (device, path) = match path.strip_prefix('(').and_then(|it| it.split_once(')')) {
            Some((device, path)) => (device, path),
            None => (self.get("root"), path),
        };
        Ok(Location {
            volume: self.volume(device)?,
            path: path.to_owned(),
        })
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.place(path).is_ok_and(|place| self.system.has(&place))
    }

    fn include(&mut self, place: &Location, depth: usize) -> Result<(), EntryError> {
        let text = self.system.text(place, LONGEST_CONFIG)?;
        let nodes = script::parse(&text).map_err(|error| EntryError::Unclear(error.to_string()))?;
        self.run(&nodes, depth + 1)
    }

    fn run(&mut self, nodes: &[Node], depth: usize) -> Result<(), EntryError> {
        if depth > MOST_DEPTH {
            return Err(EntryError::unclear("GRUB's configuration calls itself"));
        }
        for node in nodes {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(EntryError::unclear("GRUB's configuration has no end"));
            }
            match node {
                Node::Command(words) => {
                    let words = self.expand(words);
                    if let Some((name, arguments)) = words.split_first() {
                        self.command(name, arguments, depth)?;
                    }
                }
                Node::If { arms, otherwise } => self.branch(arms, otherwise, depth)?,
                Node::Function { name, body } => {
                    self.functions.insert(name.clone(), body.clone());
                }
                Node::Entry {
                    head,
                    body,
                    is_submenu,
                } => self.menu_item(head, body, *is_submenu),
                Node::Loop => {
                    return Err(EntryError::unclear("GRUB's configuration has a loop"));
                }
            }
        }
        Ok(())
    }

    fn branch(
        &mut self,
        arms: &[(Vec<Node>, Vec<Node>)],
        otherwise: &[Node],
        depth: usize,
    ) -> Result<(), EntryError> {
        for (condition, body) in arms {
            self.run(condition, depth + 1)?;
            if self.status {
                return self.run(body, depth + 1);
            }
        }
        self.run(otherwise, depth + 1)
    }

    fn menu_item(&mut self, head: &[Word], body: &[Node], is_submenu: bool) {
        let words = self.expand(head);
        let mut words = words.into_iter();
        let title = words.next().unwrap_or_default();
        let mut id = title.clone();
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("--id", value)) => value.clone_into(&mut id),
                _ if word == "--id" => id = words.next().unwrap_or_default(),
                _ => {}
            }
        }
        let body = body.to_vec();
        self.add(Item {
            title,
            id,
            does: Does::Script { body, is_submenu },
        });
    }

    fn add(&mut self, item: Item) {
        if self.menu.len() < MOST_ENTRIES {
            self.menu.push(item);
        }
    }

    /// Of the menu that there is now; `$default` names one for each depth, by place, title or id. The first where it means none.
    fn default_item(&self, depth: usize) -> Item {
        let default = self.get("default").split('>').nth(depth);
        let default = default.unwrap_or_default().trim();
        let named = |item: &&Item| item.title == default || item.id == default;
        let by_place = default.parse::<usize>().ok();
        let found = by_place.and_then(|at| self.menu.get(at));
        let found = found.or_else(|| self.menu.iter().find(named));
        found.unwrap_or(&self.menu[0]).clone()
    }

    /// GRUB fills variables into what it finds there.
    fn of_bls(&self, entry: &bls::Entry, volume: usize) -> Result<Entry, EntryError> {
        let filled = |text: &str| -> Result<Vec<String>, EntryError> {
            let nodes =
                script::parse(text).map_err(|error| EntryError::Unclear(error.to_string()))?;
            Ok(match nodes.as_slice() {
                [Node::Command(words)] => self.expand(words),
                [] => Vec::new(),
                _ => return Err(EntryError::unclear("a boot entry has a script in it")),
            })
        };
        let mut initrds = Vec::new();
        for line in &entry.initrds {
            initrds.extend(filled(line)?);
        }
        let place = |path: String| Location { volume, path };
        let options: Vec<String> = filled(&entry.options)?
            .iter()
            .map(|word| quoted(word))
            .collect();
        let kernel = format!("({}){}", self.device(volume), entry.kernel);
        Ok(Entry {
            kernel: Some(place(entry.kernel.clone())),
            initrds: initrds.into_iter().map(place).collect(),
            options: format!("BOOT_IMAGE={kernel} {}", options.join(" ")),
        })
    }

    fn expand(&self, words: &[Word]) -> Vec<String> {
        let mut expanded = Vec::new();
        for word in words {
            if let Some(text) = plain(word) {
                expanded.push(text.to_owned());
                continue;
            }
            // A variable outside of quotes may be several words, or none.
            let mut open: Option<String> = None;
            for piece in word {
                match piece {
                    Piece::Text(text) => open.get_or_insert_default().push_str(text),
                    Piece::Variable { name, quoted: true } => {
                        let value = self.value(name);
                        open.get_or_insert_default().push_str(&value);
                    }
                    Piece::Variable { name, .. } => {
                        let value = self.value(name);
                        let begins = value.starts_with(char::is_whitespace);
                        let ends = value.ends_with(char::is_whitespace);
                        for (at, part) in value.split_whitespace().enumerate() {
                            if (at > 0 || begins) && open.is_some() {
                                expanded.extend(open.take());
                            }
                            open.get_or_insert_default().push_str(part);
                        }
                        if ends {
                            expanded.extend(open.take());
                        }
                    }
                }
            }
            expanded.extend(open);
        }
        for word in &mut expanded {
            cut(word);
        }
        expanded
    }

    fn value(&self, name: &str) -> String {
        match name {
            "?" => u8::from(!self.status).to_string(),
            name => self.get(name).to_owned(),
        }
    }
}

/// Bytes, at a letter's end.
fn cut(word: &mut String) {
    if word.len() > LONGEST_VALUE {
        let mut end = LONGEST_VALUE;
        while !word.is_char_boundary(end) {
            end -= 1;
        }
        word.truncate(end);
    }
}

/// As the kernel reads it: a word with spaces is put into quotes.
fn quoted(word: &str) -> String {
    if !word.contains(char::is_whitespace) || word.contains('"') {
        return word.to_owned();
    }
    match word.split_once('=') {
        Some((name, value)) => format!("{name}=\"{value}\""),
        None => format!("\"{word}\""),
    }
}

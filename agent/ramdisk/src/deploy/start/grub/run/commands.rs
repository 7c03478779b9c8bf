//! The commands that decide what is started.

use super::{EntryError, Item, Shell, quoted};
use crate::deploy::start::bls;
use crate::deploy::start::grub::{env, test};
use crate::deploy::start::system::Entry;

const LONGEST_ENV: u64 = 64 << 10;

impl Shell<'_> {
    pub(super) fn command(
        &mut self,
        name: &str,
        arguments: &[String],
        depth: usize,
    ) -> Result<(), EntryError> {
        if let Some(body) = self.functions.get(name).cloned() {
            return self.run(&body, depth + 1);
        }
        if let Some((variable, value)) = assignment(name) {
            self.set(variable, value);
        } else {
            let first = arguments.first().map_or("", String::as_str);
            self.status = true;
            match name {
                "set" => {
                    if let Some((variable, value)) = first.split_once('=') {
                        self.set(variable, value);
                    }
                }
                "unset" => drop(self.variables.remove(first)),
                "[" | "test" => self.status = test::holds(self, arguments),
                "false" => self.status = false,
                "load_env" => self.load_env(arguments)?,
                "search" | "search.fs_uuid" | "search.fs_label" | "search.file" => {
                    self.search(name, arguments);
                }
                "probe" => self.probe(arguments)?,
                "configfile" | "source" | "." | "extract_entries_source" => {
                    let place = self.place(first)?;
                    self.include(&place, depth + 1)?;
                }
                "blscfg" => self.blscfg()?,
                "linux" | "linuxefi" | "linux16" => self.linux(arguments)?,
                "initrd" | "initrdefi" | "initrd16" => self.initrd(arguments)?,
                "chainloader" | "multiboot" | "multiboot2" | "kernel" | "ntldr" | "exit"
                | "fwsetup" | "reboot" | "halt" | "xen_hypervisor" => {
                    // `fwsetup --is-supported` is a question.
                    self.status = name != "fwsetup";
                    if name != "fwsetup" {
                        self.other = Some(name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn linux(&mut self, arguments: &[String]) -> Result<(), EntryError> {
        let Some((kernel, rest)) = arguments.split_first() else {
            return Err(EntryError::unclear("GRUB's `linux` names no kernel"));
        };
        let options: Vec<String> = rest.iter().map(|word| quoted(word)).collect();
        let place = self.place(kernel)?;
        // As GRUB does, and with it the tools that ask the running kernel which one it is.
        let options = format!("BOOT_IMAGE={kernel} {}", options.join(" "));
        self.entry = Entry {
            kernel: Some(place),
            initrds: Vec::new(),
            options: options.trim_end().to_owned(),
        };
        self.other = None;
        Ok(())
    }

    fn initrd(&mut self, arguments: &[String]) -> Result<(), EntryError> {
        let places = arguments.iter().map(|path| self.place(path));
        self.entry.initrds = places.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn load_env(&mut self, arguments: &[String]) -> Result<(), EntryError> {
        let mut file = format!("{}/grubenv", self.get("prefix"));
        let mut wanted = Vec::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-f" | "--file" => file = words.next().cloned().unwrap_or_default(),
                option if option.starts_with('-') => {}
                name => wanted.push(name.to_owned()),
            }
        }
        let Ok(place) = self.place(&file) else {
            self.status = false;
            return Ok(());
        };
        if !self.system.has(&place) {
            self.status = false;
            return Ok(());
        }
        let text = self.system.text(&place, LONGEST_ENV)?;
        for (name, value) in env::parse(&text) {
            if wanted.is_empty() || wanted.contains(&name) {
                self.set(&name, &value);
            }
        }
        Ok(())
    }

    /// Where there is no such file system the variable says so, and whoever uses it fails with that.
    fn search(&mut self, name: &str, arguments: &[String]) {
        let mut by = name.rsplit_once('.').map_or("", |(_, by)| by).to_owned();
        let mut variable = "root".to_owned();
        let mut values = Vec::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("--set", name)) => name.clone_into(&mut variable),
                Some((option, _)) if option.starts_with("--") => {}
                _ => match word.as_str() {
                    "--fs-uuid" | "-u" => "fs_uuid".clone_into(&mut by),
                    "--label" | "--fs-label" | "-l" => "fs_label".clone_into(&mut by),
                    "--file" | "-f" => "file".clone_into(&mut by),
                    "--part-uuid" => "part_uuid".clone_into(&mut by),
                    "--set" | "-s" => {
                        // Its value may be left out.
                        let mut ahead = words.clone();
                        if let Some(next) = ahead.next().filter(|next| !next.starts_with('-'))
                            && ahead.next().is_some()
                        {
                            words.next();
                            next.clone_into(&mut variable);
                        }
                    }
                    option if option.starts_with('-') => {}
                    value => values.push(value.to_owned()),
                },
            }
        }
        // As in `search.fs_uuid UUID root HINTS`.
        if name.contains('.') && values.len() > 1 {
            variable = values.swap_remove(1);
        }
        let wanted = values.first().cloned().unwrap_or_default();
        let found = self.system.find(|it| match by.as_str() {
            "fs_label" => it.label == wanted,
            "file" => it.tree.has(&wanted),
            "part_uuid" => it.part_uuid.eq_ignore_ascii_case(&wanted),
            _ => !wanted.is_empty() && it.uuid.eq_ignore_ascii_case(&wanted),
        });
        self.status = found.is_some();
        let value = found.map_or_else(|| wanted.clone(), |volume| self.device(volume));
        self.set(&variable, &value);
    }

    fn probe(&mut self, arguments: &[String]) -> Result<(), EntryError> {
        let mut variable = None;
        let mut what = String::new();
        let mut device = String::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--set" | "-s" => variable = words.next().cloned(),
                word if word.starts_with("--set=") => variable = Some(word[6..].to_owned()),
                word if word.starts_with('-') => word.clone_into(&mut what),
                word => word.trim_matches(['(', ')']).clone_into(&mut device),
            }
        }
        let volume = self.volume(&device)?;
        let volume = &self.system.volumes[volume];
        let value = match what.as_str() {
            "--part-uuid" => volume.part_uuid.clone(),
            "--fs-uuid" | "-u" => volume.uuid.clone(),
            "--label" | "-l" => volume.label.clone(),
            _ => return Err(EntryError::Unclear(format!("GRUB asks by `probe {what}`"))),
        };
        if let Some(variable) = variable {
            self.set(&variable, &value);
        }
        Ok(())
    }

    /// Fedora's: the entries of the boot file system become the menu, newest first.
    fn blscfg(&mut self) -> Result<(), EntryError> {
        let device = match self.get("boot") {
            "" => self.get("root"),
            boot => boot,
        };
        let volume = self.volume(device)?;
        for (id, entry) in bls::load(self.system, volume)? {
            let title = entry.title.clone();
            let does = super::Does::Start { entry, volume };
            self.add(Item { title, id, does });
        }
        Ok(())
    }
}

fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some((name, value))
}

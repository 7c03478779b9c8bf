//! Who may do what at the box: people with passwords, programs with tokens, and the sessions of those who have logged in (docs/people.md,
//! decision 0048).
//!
//! `record` is what is kept, `password` and `secret` how it is shown, `sessions` who is logged in, `attempts` who has to wait; all of these are
//! values on a clock that is passed in. `audit` is what was done, `log_host` its copy elsewhere. [`People`] joins them at the edge. Must not: know of HTTP, or of what may
//! be done (`web/people/gate.rs`).

mod attempts;
mod audit;
mod log_host;
mod password;
mod record;
mod secret;
mod sessions;
#[cfg(test)]
mod tests;

use std::{
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use firstlight_api::{
    people::{
        AuditLine, MOST_OPERATORS, MOST_TOKEN_DAYS, MadeToken, NewOperator, NewToken, Operator,
        PasswordHash, PersonName, Role, SiteOperator, Token, check_password,
    },
    site::SiteConfig,
    status::Problem,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    files::{self, Access},
    pki::Pki,
    status::StatusSender,
};
use attempts::Attempts;
use audit::Audit;
pub use audit::{APPROVE, DONE, INSTALL};
use record::{Kept, KeptToken, MOST_TOKENS, Record};
use secret::{Secret, is_code};
pub use sessions::LONGEST as LONGEST_SESSION;
use sessions::Sessions;

const SOURCE: &str = "people";
const FILE: &str = "people.json";
/// Bytes of the file: all that may be in it, with room.
const LARGEST: u64 = 256 * 1024;
const TOKEN: &str = "firstlight_";
const DAY: i64 = 24 * 60 * 60;
/// Passwords that are checked, or wait for it, at a time: each takes 19 MiB and some tenths of a second.
const MOST_WAITING: usize = 8;
/// Wrong codes, after which the console shows another one.
const MOST_WRONG_CODES: u32 = 10;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    Nobody,
    /// Somebody who is logged in on the box, by SSH or at its console.
    OnBox,
    Person(PersonName, Role),
    Token(PersonName, Role),
}

impl Who {
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Nobody => None,
            Self::OnBox => Some(Role::Admin),
            Self::Person(_, role) | Self::Token(_, role) => Some(*role),
        }
    }

    /// For the audit log.
    pub fn name(&self) -> String {
        match self {
            Self::Nobody => "nobody".to_owned(),
            Self::OnBox => "box".to_owned(),
            Self::Person(name, _) => name.to_string(),
            Self::Token(name, _) => format!("token {name}"),
        }
    }
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("too many wrong answers; try again in {0} s, or log in on the box over SSH")]
    Wait(u64),
    #[error("too many people log in at this moment; try again in a few seconds")]
    Busy,
    /// Neither who nor what was wrong is said.
    #[error("this name and this password do not belong together")]
    Wrong,
    #[error("{0}")]
    Unfit(String),
    #[error("{0}")]
    Conflict(String),
    #[error("there is no {0}")]
    Missing(String),
    #[error("the box could not do it: {0}")]
    Broken(String),
}

impl From<firstlight_api::people::Unfit> for Refusal {
    fn from(unfit: firstlight_api::people::Unfit) -> Self {
        Self::Unfit(unfit.to_string())
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(format!("{error:#}"))
    }
}

/// Whether there is anybody who could log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The box is starting, and does not know yet. Nothing that a person keeps from others is known then.
    Unknown,
    /// Nobody: the page is shown to everybody, and changes nothing.
    Nobody,
    Somebody,
}

/// All of it; clones are the same.
#[derive(Clone, Debug)]
pub struct People {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    audit: Audit,
    state: Mutex<State>,
    /// One change at a time, from what it is about to the disk.
    changing: tokio::sync::Mutex<()>,
    hashing: Semaphore,
    places: Semaphore,
    code: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: not read yet, or it cannot be read.
    record: Option<Record>,
    is_broken: bool,
    of_site: Vec<SiteOperator>,
    sessions: Sessions,
    attempts: Attempts,
    wrong_codes: u32,
}

impl State {
    fn find(&self, name: &PersonName) -> Option<(Role, &PasswordHash)> {
        let mut of_site = self.of_site.iter();
        if let Some(person) = of_site.find(|person| person.name == *name) {
            return Some((person.role, &person.password));
        }
        let person = self.record.as_ref()?.person(name)?;
        Some((person.role, &person.password))
    }

    fn is_claimed(&self) -> Claim {
        match &self.record {
            _ if self.is_broken || !self.of_site.is_empty() => Claim::Somebody,
            None => Claim::Unknown,
            Some(record) if record.operators.is_empty() && record.tokens.is_empty() => {
                Claim::Nobody
            }
            Some(_) => Claim::Somebody,
        }
    }

    fn record(&self) -> Result<Record, Refusal> {
        self.record.clone().ok_or_else(|| {
            Refusal::Broken(if self.is_broken {
                "its record of people cannot be read; the page says more".to_owned()
            } else {
                "it is starting; try again in a few seconds".to_owned()
            })
        })
    }
}

impl People {
    pub fn new(folder: PathBuf) -> Self {
        let shared = Shared {
            audit: Audit::new(folder.clone()),
            folder,
            state: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            hashing: Semaphore::new(1),
            places: Semaphore::new(MOST_WAITING),
            code: watch::Sender::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The code with which the first operator is made, for the console; `None` while there is nothing to make.
    pub fn code(&self) -> watch::Receiver<Option<String>> {
        self.shared.code.subscribe()
    }

    pub fn claim(&self) -> Claim {
        self.state().is_claimed()
    }

    /// Reads what is kept.
    pub async fn open(&self, site: &SiteConfig) -> Result<()> {
        let folder = self.shared.folder.clone();
        let read = tokio::task::spawn_blocking(move || {
            files::make_dir(&folder, 0o700)?;
            read(&folder.join(FILE))
        })
        .await?;
        let mut state = self.state();
        state.of_site.clone_from(&site.operators);
        let result = match read {
            Ok(record) => {
                state.record = Some(record);
                state.is_broken = false;
                Ok(())
            }
            Err(error) => {
                state.is_broken = true;
                Err(error)
            }
        };
        drop(state);
        self.show_code();
        result
    }

    /// On the console, as long as there is nobody.
    fn show_code(&self) {
        let wanted = self.claim() == Claim::Nobody;
        self.shared.code.send_if_modified(|shown| {
            if wanted == shown.is_some() {
                return false;
            }
            *shown = wanted.then(secret::code).and_then(Result::ok);
            true
        });
    }

    pub fn by_session(&self, shown: &str) -> Option<Who> {
        let mut state = self.state();
        let name = state.sessions.find(shown, clock::uptime())?;
        let role = state.find(&name)?.0;
        Some(Who::Person(name, role))
    }

    pub fn by_token(&self, shown: &str) -> Option<Who> {
        let (digest, now) = (secret::digest(shown), clock::wall_seconds());
        let state = self.state();
        let mut tokens = state.record.as_ref()?.tokens.iter();
        let token = tokens.find(|token| token.digest == digest && token.ends > now)?;
        Some(Who::Token(token.name.clone(), token.role))
    }

    /// Whether somebody who was let in to read still is.
    pub fn may_read(&self, who: &Who) -> bool {
        let state = self.state();
        match who {
            Who::OnBox => true,
            Who::Nobody => state.is_claimed() != Claim::Somebody,
            Who::Person(name, _) => state.find(name).is_some(),
            Who::Token(name, _) => {
                let mut tokens = state.record.iter().flat_map(|record| &record.tokens);
                tokens.any(|token| token.name == *name)
            }
        }
    }

    /// The secret of a session.
    pub async fn log_in(
        &self,
        peer: IpAddr,
        name: &str,
        password: &str,
    ) -> Result<String, Refusal> {
        let Ok(name) = PersonName::parse(name) else {
            return Err(Refusal::Wrong);
        };
        let (wait, hash) = {
            let state = self.state();
            let wait = state.attempts.wait(peer, &name, clock::uptime());
            (wait, state.find(&name).map(|(_, hash)| hash.clone()))
        };
        if let Some(wait) = wait {
            return Err(Refusal::Wait(wait.as_secs() + 1));
        }
        let is_right = self.check(hash.clone(), password.to_owned()).await?;
        let secret = is_right.then(|| Secret::new("")).transpose()?;
        let outcome = {
            let now = clock::uptime();
            let mut state = self.state();
            // Not one that was changed meanwhile.
            let is_current = state.find(&name).map(|(_, hash)| hash) == hash.as_ref();
            if let Some(secret) = secret.filter(|_| is_current) {
                state.attempts.right(peer, &name);
                state.sessions.begin(name.clone(), &secret, now);
                Ok(secret.shown().to_owned())
            } else {
                state.attempts.wrong(peer, &name, now);
                Err(Refusal::Wrong)
            }
        };
        let said = outcome.as_ref().err().map(ToString::to_string);
        // Whoever does not know the password is somebody else.
        let who = if said.is_some() {
            "nobody"
        } else {
            name.as_str()
        };
        self.note(who, peer, "log in", name.as_str(), said).await;
        outcome
    }

    pub fn log_out(&self, shown: &str) {
        self.state().sessions.end(shown);
    }

    /// Of a name that nobody has, as long as of another.
    async fn check(&self, hash: Option<PasswordHash>, password: String) -> Result<bool, Refusal> {
        let _place = self
            .shared
            .places
            .try_acquire()
            .map_err(|_| Refusal::Busy)?;
        // Never closed.
        let _turn = self.shared.hashing.acquire().await;
        let checked = tokio::task::spawn_blocking(move || {
            if let Some(hash) = hash {
                password::is_right(&hash, &password)
            } else {
                drop(password::hash(&password));
                false
            }
        });
        checked
            .await
            .map_err(|error| Refusal::Broken(error.to_string()))
    }

    /// Whoever reads the console makes the first operator, an admin; the answer is the secret of a session.
    pub async fn make_first(
        &self,
        peer: IpAddr,
        code: &str,
        new: NewOperator,
    ) -> Result<String, Refusal> {
        let known = self.code().borrow().clone();
        let Some(known) = known else {
            return Err(Refusal::Conflict(
                "there is an operator already; log in, or ask an admin to add you".to_owned(),
            ));
        };
        let name = new.name.clone();
        let wait = self.state().attempts.wait(peer, &name, clock::uptime());
        if let Some(wait) = wait {
            return Err(Refusal::Wait(wait.as_secs() + 1));
        }
        if !is_code(&known, code) {
            self.wrong_code(peer, &name);
            let said = "a wrong code".to_owned();
            self.note(
                "nobody",
                peer,
                "make the first operator",
                name.as_str(),
                Some(said),
            )
            .await;
            return Err(Refusal::Unfit(
                "this is not the code that the box's console shows".to_owned(),
            ));
        }
        let password = new.password.clone();
        let new = NewOperator {
            role: Role::Admin,
            ..new
        };
        let made = self.add_if(new, |record| record.operators.is_empty()).await;
        self.note_made(
            &Who::OnBox,
            peer,
            "make the first operator",
            name.as_str(),
            &made,
        )
        .await;
        made?;
        self.log_in(peer, name.as_str(), &password).await
    }

    fn wrong_code(&self, peer: IpAddr, name: &PersonName) {
        let mut state = self.state();
        state.attempts.wrong(peer, name, clock::uptime());
        state.wrong_codes += 1;
        if state.wrong_codes.is_multiple_of(MOST_WRONG_CODES)
            && let Ok(code) = secret::code()
        {
            self.shared.code.send_replace(Some(code));
        }
    }

    pub fn operators(&self) -> Vec<Operator> {
        let state = self.state();
        let of_site = state.of_site.iter().map(|person| Operator {
            name: person.name.clone(),
            role: person.role,
            of_site: true,
        });
        let kept = state.record.iter().flat_map(|record| &record.operators);
        let is_shadowed = |person: &&Kept| state.of_site.iter().any(|it| it.name == person.name);
        let kept = kept
            .filter(|person| !is_shadowed(person))
            .map(|person| Operator {
                name: person.name.clone(),
                role: person.role,
                of_site: false,
            });
        of_site.chain(kept).collect()
    }

    pub fn tokens(&self) -> Vec<Token> {
        let state = self.state();
        let tokens = state.record.iter().flat_map(|record| &record.tokens);
        tokens
            .map(|token| Token {
                name: token.name.clone(),
                role: token.role,
                by: token.by.clone(),
                ends: clock::rfc3339_of(token.ends),
            })
            .collect()
    }

    pub async fn add(&self, by: &Who, peer: IpAddr, new: NewOperator) -> Result<(), Refusal> {
        let name = new.name.to_string();
        let made = self.add_if(new, |_| true).await;
        self.note_made(by, peer, "add operator", &name, &made).await;
        made
    }

    async fn add_if(
        &self,
        new: NewOperator,
        may: impl FnOnce(&Record) -> bool,
    ) -> Result<(), Refusal> {
        let hash = self.hash(&new.name, new.password).await?;
        let of_site = self.state().of_site.len();
        self.change(|record, state| {
            if !may(record) {
                return Err(Refusal::Conflict(
                    "somebody else was the first; log in, or ask an admin to add you".to_owned(),
                ));
            }
            if state.find(&new.name).is_some() {
                return Err(Refusal::Conflict(format!(
                    "there is an operator {} already",
                    new.name
                )));
            }
            if record.operators.len() + of_site >= MOST_OPERATORS {
                return Err(Refusal::Conflict(format!(
                    "a site has {MOST_OPERATORS} operators at most"
                )));
            }
            record.operators.push(Kept {
                name: new.name,
                role: new.role,
                password: hash,
            });
            Ok(())
        })
        .await
    }

    async fn hash(&self, name: &PersonName, password: String) -> Result<PasswordHash, Refusal> {
        check_password(name, &password)?;
        let _place = self
            .shared
            .places
            .try_acquire()
            .map_err(|_| Refusal::Busy)?;
        let _turn = self.shared.hashing.acquire().await;
        let hashed = tokio::task::spawn_blocking(move || password::hash(&password)).await;
        Ok(hashed.map_err(|error| Refusal::Broken(error.to_string()))??)
    }

    /// Another password, another role, or both. Who is logged in as this person is not any more.
    pub async fn change_operator(
        &self,
        by: &Who,
        peer: IpAddr,
        name: &PersonName,
        role: Option<Role>,
        password: Option<String>,
    ) -> Result<(), Refusal> {
        let changed = async {
            let hash = match password {
                Some(password) => Some(self.hash(name, password).await?),
                None => None,
            };
            self.change(|record, state| {
                is_kept(name, state)?;
                if role.is_some_and(|role| role < Role::Admin) {
                    keeps_an_admin(by, name, record, state)?;
                }
                let kept = record.operators.iter_mut();
                for person in kept.filter(|person| person.name == *name) {
                    person.role = role.unwrap_or(person.role);
                    if let Some(hash) = &hash {
                        person.password = hash.clone();
                    }
                }
                Ok(())
            })
            .await?;
            self.state().sessions.end_all(name);
            Ok(())
        }
        .await;
        self.note_made(by, peer, "change operator", name.as_str(), &changed)
            .await;
        changed
    }

    pub async fn remove(&self, by: &Who, peer: IpAddr, name: &PersonName) -> Result<(), Refusal> {
        let removed = self
            .change(|record, state| {
                is_kept(name, state)?;
                keeps_an_admin(by, name, record, state)?;
                record.operators.retain(|person| person.name != *name);
                Ok(())
            })
            .await;
        if removed.is_ok() {
            self.state().sessions.end_all(name);
        }
        self.note_made(by, peer, "remove operator", name.as_str(), &removed)
            .await;
        removed
    }

    pub async fn make_token(
        &self,
        by: &Who,
        peer: IpAddr,
        new: NewToken,
    ) -> Result<MadeToken, Refusal> {
        let made = async {
            if !(1..=MOST_TOKEN_DAYS).contains(&new.days) {
                return Err(Refusal::Unfit(format!(
                    "a token lasts 1 to {MOST_TOKEN_DAYS} days, not {}",
                    new.days
                )));
            }
            let secret = Secret::new(TOKEN)?;
            let now = clock::wall_seconds();
            let ends = now + i64::from(new.days) * DAY;
            self.change(|record, _| {
                record.tokens.retain(|token| token.ends > now);
                if record.tokens.iter().any(|token| token.name == new.name) {
                    return Err(Refusal::Conflict(format!(
                        "there is a token {} already; remove it, or give this one another name",
                        new.name
                    )));
                }
                if record.tokens.len() >= MOST_TOKENS {
                    return Err(Refusal::Conflict(format!(
                        "a site has {MOST_TOKENS} tokens at most"
                    )));
                }
                record.tokens.push(KeptToken {
                    name: new.name.clone(),
                    role: new.role,
                    by: by.name(),
                    ends,
                    digest: secret.digest(),
                });
                Ok(())
            })
            .await?;
            Ok(MadeToken {
                token: secret.shown().to_owned(),
                ends: clock::rfc3339_of(ends),
            })
        }
        .await;
        let target = format!("{} as {}", new.name, new.role);
        self.note_made(by, peer, "make token", &target, &made).await;
        made
    }

    pub async fn remove_token(
        &self,
        by: &Who,
        peer: IpAddr,
        name: &PersonName,
    ) -> Result<(), Refusal> {
        let removed = self
            .change(|record, _| {
                let before = record.tokens.len();
                record.tokens.retain(|token| token.name != *name);
                if record.tokens.len() == before {
                    return Err(Refusal::Missing(format!("token {name}")));
                }
                Ok(())
            })
            .await;
        self.note_made(by, peer, "remove token", name.as_str(), &removed)
            .await;
        removed
    }

    /// On the disk first, then it holds.
    async fn change(
        &self,
        change: impl FnOnce(&mut Record, &State) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let _turn = self.shared.changing.lock().await;
        let record = {
            let state = self.state();
            let mut record = state.record()?;
            change(&mut record, &state)?;
            record
        };
        let text = serde_json::to_vec_pretty(&record).map_err(anyhow::Error::from)?;
        let file = self.shared.folder.join(FILE);
        let written =
            tokio::task::spawn_blocking(move || files::write(&file, &text, Access::Owner)).await;
        written.map_err(|error| Refusal::Broken(error.to_string()))??;
        self.state().record = Some(record);
        self.show_code();
        Ok(())
    }

    pub async fn audit(&self) -> Vec<AuditLine> {
        self.shared.audit.read().await
    }

    /// Words on servers, and what else was done.
    pub async fn audit_for_receipt(&self) -> (Vec<AuditLine>, Vec<AuditLine>) {
        self.shared.audit.for_receipt().await
    }

    async fn note_made<T>(
        &self,
        by: &Who,
        peer: IpAddr,
        what: &str,
        target: &str,
        made: &Result<T, Refusal>,
    ) {
        let why_not = made.as_ref().err().map(ToString::to_string);
        self.note(&by.name(), peer, what, target, why_not).await;
    }

    /// `why_not`: it was not done.
    pub async fn note(
        &self,
        who: &str,
        peer: IpAddr,
        what: &str,
        target: &str,
        why_not: Option<String>,
    ) {
        let line = AuditLine {
            time: clock::rfc3339(),
            who: who.to_owned(),
            from: peer.to_string(),
            what: what.to_owned(),
            target: target.to_owned(),
            outcome: why_not.unwrap_or_else(|| DONE.to_owned()),
        };
        self.shared.audit.note(line).await;
    }
}

/// Here, and not in site.yaml.
fn is_kept(name: &PersonName, state: &State) -> Result<(), Refusal> {
    if state.of_site.iter().any(|person| person.name == *name) {
        return Err(Refusal::Conflict(format!(
            "{name} is in `operators` of site.yaml; change it there, and restart the box"
        )));
    }
    let record = state.record.as_ref();
    record
        .and_then(|record| record.person(name))
        .map(drop)
        .ok_or_else(|| Refusal::Missing(format!("operator {name}")))
}

/// Nobody on the page takes away the last who could give it back. Who is logged in on the box can.
fn keeps_an_admin(
    by: &Who,
    name: &PersonName,
    record: &Record,
    state: &State,
) -> Result<(), Refusal> {
    let others = record.operators.iter();
    let mut others = others.filter(|person| person.name != *name);
    let is_left = others.any(|person| person.role == Role::Admin)
        || state
            .of_site
            .iter()
            .any(|person| person.role == Role::Admin);
    if is_left || *by == Who::OnBox {
        return Ok(());
    }
    Err(Refusal::Conflict(format!(
        "{name} is the last admin; make somebody else one first"
    )))
}

fn read(file: &std::path::Path) -> Result<Record> {
    let name = file.display();
    match fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Record::default()),
        Err(error) => return Err(error).with_context(|| format!("reading {name}")),
        Ok(found) => anyhow::ensure!(found.len() <= LARGEST, "{name} is too large"),
    }
    let text = fs::read(file).with_context(|| format!("reading {name}"))?;
    serde_json::from_slice(&text).with_context(|| format!("{name} is damaged"))
}

/// Opens the record once it is there, and tells why it cannot be. Runs until `stop`.
pub async fn run(
    people: People,
    mut site: watch::Receiver<Option<Arc<SiteConfig>>>,
    mut state: watch::Receiver<Option<Arc<Pki>>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    const AGAIN: Duration = Duration::from_secs(10);
    let work = async {
        // The keys are the first that is made on the state partition.
        state.wait_for(Option::is_some).await?;
        let Some(site) = site.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        loop {
            match people.open(&site).await {
                Ok(()) => break status.problems(SOURCE, Vec::new()),
                Err(error) => {
                    let problem = Problem {
                        what: format!("nobody can log in at the page: {error:#}"),
                        next: "who is logged in on the box over SSH can do everything meanwhile; nothing was overwritten, and the box tries again. If the \
                               file is damaged, move it away there and make the operators anew: `firstlight operators add`"
                            .to_owned(),
                    };
                    status.problems(SOURCE, vec![problem]);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        if let Some(host) = site.log_host {
            let (mut lines, lost) = people.shared.audit.copies();
            log_host::copy(host.into(), &mut lines, lost, &status).await;
        }
        std::future::pending::<()>().await;
        Ok(())
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

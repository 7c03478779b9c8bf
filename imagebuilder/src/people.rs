//! `firstlight operators`, `tokens` and `audit`: who may do what at a box, asked over SSH. Whoever may log in there as `admin` is an admin of the
//! page, too: nobody can be locked out for ever.

use std::fmt::Write as _;

use anyhow::{Context, Result, anyhow};
use argon2::password_hash::{PasswordHasher as _, SaltString};
use clap::{Args, Subcommand};
use firstlight_api::bounded;
use firstlight_api::people::{
    AuditLine, MadeToken, NewOperator, NewToken, Operator, PasswordHash, PersonName, Role,
    TOKEN_DAYS, Token, check_password,
};
use serde_json::json;

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::secret;
use crate::ssh::BoxArgs;

const MAKING: &str = "As long as a site has no operator and no token, everybody on its network reads the page, and nobody changes anything there. From the first
one on everybody logs in, at https://BOX. Passwords are asked for, or read from standard input:

  firstlight operators add ada --role admin
  firstlight operators password ada                    she has forgotten hers, or guessed too often
  firstlight operators hash                            for `operators` of a site.yaml, without a box
  firstlight tokens make scraper --role viewer         for a program: `Authorization: Bearer firstlight_…`

viewer reads; operator changes what servers and clusters do; admin says who may do what, and reads Secrets.";

#[derive(Debug, Args)]
#[command(after_help = MAKING)]
pub struct OperatorsArgs {
    #[command(subcommand)]
    command: OperatorsCommand,
    #[command(flatten)]
    the_box: BoxArgs,
}

#[derive(Debug, Subcommand)]
enum OperatorsCommand {
    /// Who may log in at the page, and as what
    List,
    /// Let somebody log in
    Add {
        #[arg(value_parser = name)]
        name: PersonName,
        /// viewer, operator or admin
        #[arg(long, value_parser = role)]
        role: Role,
    },
    /// Give somebody another role; who is logged in has to log in again
    Role {
        #[arg(value_parser = name)]
        name: PersonName,
        #[arg(value_parser = role)]
        role: Role,
    },
    /// Give somebody another password
    Password {
        #[arg(value_parser = name)]
        name: PersonName,
    },
    /// Let somebody in no longer, from this moment on
    Remove {
        #[arg(value_parser = name)]
        name: PersonName,
    },
    /// Print the hash of a password, for site.yaml; no box is asked
    Hash,
}

#[derive(Debug, Args)]
#[command(after_help = MAKING)]
pub struct TokensArgs {
    #[command(subcommand)]
    command: TokensCommand,
    #[command(flatten)]
    the_box: BoxArgs,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// Which programs have one, and until when
    List,
    /// Make one for a program, and print it: it is never shown again
    Make {
        #[arg(value_parser = name)]
        name: PersonName,
        /// viewer, operator or admin
        #[arg(long, value_parser = role)]
        role: Role,
        /// It ends after so many days
        #[arg(long, default_value_t = TOKEN_DAYS)]
        days: u32,
    },
    /// Take one away, from this moment on
    Remove {
        #[arg(value_parser = name)]
        name: PersonName,
    },
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    the_box: BoxArgs,
    /// A line of JSON each, for programs
    #[arg(long)]
    json: bool,
}

fn name(text: &str) -> Result<PersonName, String> {
    PersonName::parse(text).map_err(|unfit| unfit.to_string())
}

fn role(text: &str) -> Result<Role, String> {
    text.parse()
        .map_err(|unfit: firstlight_api::people::Unfit| unfit.to_string())
}

pub fn operators(args: &OperatorsArgs) -> Result<String> {
    let ask =
        |method: &str, path: &str, body: &serde_json::Value| ask(&args.the_box, method, path, body);
    Ok(match &args.command {
        OperatorsCommand::List => {
            let body = ask("GET", "/api/v1/operators", &json!(null))?;
            listed(&serde_json::from_slice(&body).context("the box's answer is no list")?)
        }
        OperatorsCommand::Add { name, role } => {
            let new = NewOperator {
                name: name.clone(),
                role: *role,
                password: new_password(name)?,
            };
            ask("POST", "/api/v1/operators", &json!(new))?;
            format!("{name} may log in at the page as {role}\n")
        }
        OperatorsCommand::Role { name, role } => {
            let path = format!("/api/v1/operators/{name}");
            ask("PATCH", &path, &json!({"role": role}))?;
            format!("{name} is {role} from now on, and has to log in again\n")
        }
        OperatorsCommand::Password { name } => {
            let password = new_password(name)?;
            let path = format!("/api/v1/operators/{name}");
            ask("PATCH", &path, &json!({"password": password}))?;
            format!("{name} has another password, and has to log in again\n")
        }
        OperatorsCommand::Remove { name } => {
            ask("DELETE", &format!("/api/v1/operators/{name}"), &json!({}))?;
            format!("{name} may log in no longer\n")
        }
        OperatorsCommand::Hash => {
            let nobody = PersonName::parse("operator")?;
            let hash = hash(&new_password(&nobody)?)?;
            format!("{}\n", hash.as_str())
        }
    })
}

pub fn tokens(args: &TokensArgs) -> Result<String> {
    let ask =
        |method: &str, path: &str, body: &serde_json::Value| ask(&args.the_box, method, path, body);
    Ok(match &args.command {
        TokensCommand::List => {
            let body = ask("GET", "/api/v1/tokens", &json!(null))?;
            let tokens: Vec<Token> =
                serde_json::from_slice(&body).context("the box's answer is no list")?;
            let mut out = String::new();
            for token in tokens {
                let (by, ends) = (bounded::text(&token.by), bounded::text(&token.ends));
                writeln!(
                    out,
                    "{:<20} {:<9} until {ends}, by {by}",
                    token.name.as_str(),
                    token.role.as_str()
                )?;
            }
            out
        }
        TokensCommand::Make { name, role, days } => {
            let new = NewToken {
                name: name.clone(),
                role: *role,
                days: *days,
            };
            let body = ask("POST", "/api/v1/tokens", &json!(new))?;
            let made: MadeToken =
                serde_json::from_slice(&body).context("the box's answer is no token")?;
            // Alone on standard output, for a pipe.
            format!("{}\n", bounded::text(&made.token))
        }
        TokensCommand::Remove { name } => {
            ask("DELETE", &format!("/api/v1/tokens/{name}"), &json!({}))?;
            format!("the token {name} is worth nothing any more\n")
        }
    })
}

pub fn audit(args: &AuditArgs) -> Result<String> {
    let body = ask(&args.the_box, "GET", "/api/v1/audit", &json!(null))?;
    let lines: Vec<AuditLine> =
        serde_json::from_slice(&body).context("the box's answer is no audit log")?;
    let mut out = String::new();
    for line in lines {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
            continue;
        }
        let [time, who, from, what, target, outcome] = [
            &line.time,
            &line.who,
            &line.from,
            &line.what,
            &line.target,
            &line.outcome,
        ]
        .map(|text| bounded::sentence(text));
        writeln!(out, "{time} {who} ({from}): {what} {target}: {outcome}")?;
    }
    Ok(out)
}

fn ask(the_box: &BoxArgs, method: &str, path: &str, body: &serde_json::Value) -> Result<Vec<u8>> {
    let (headers, body): (&[(&str, &str)], String) = if body.is_null() {
        (&[], String::new())
    } else {
        (&[("Content-Type", "application/json")], body.to_string())
    };
    let reply = BoxClient::new(the_box)?.ask(method, path, headers, body.as_bytes())?;
    reply.check()?;
    Ok(reply.body)
}

fn listed(operators: &Vec<Operator>) -> String {
    if operators.is_empty() {
        return "nobody: everybody on the site's network reads the page, and nobody changes anything there; `firstlight operators add NAME --role admin` makes the \
                first\n"
            .to_owned();
    }
    let mut out = String::new();
    for operator in operators {
        let whence = if operator.of_site { "of site.yaml" } else { "" };
        let (name, role) = (operator.name.as_str(), operator.role.as_str());
        out.push_str(format!("{name:<20} {role:<9} {whence}").trim_end());
        out.push('\n');
    }
    out
}

/// Asked for twice where somebody types it, read once from a pipe.
fn new_password(name: &PersonName) -> Result<String> {
    let password = secret::ask_new(&format!("A password for {name}: "), "passwords")?;
    check_password(name, &password).map_err(|unfit| UsageError(unfit.to_string()))?;
    Ok(password)
}

fn hash(password: &str) -> Result<PasswordHash> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt)?;
    let salt = SaltString::encode_b64(&salt).map_err(|error| anyhow!("{error}"))?;
    let hash = argon2::Argon2::default().hash_password(password.as_bytes(), &salt);
    let hash = hash.map_err(|error| anyhow!("hashing a password: {error}"))?;
    Ok(PasswordHash::parse(&hash.to_string())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_hash_is_one_that_site_yaml_takes() {
        let hash = hash("four plain words here").unwrap();
        let site = format!(
            "operators:\n- {{name: ada, role: admin, password: \"{}\"}}\n",
            hash.as_str()
        );
        let site = firstlight_api::site::parse_site(&site).unwrap();
        assert_eq!(site.operators[0].password, hash);
    }

    #[test]
    fn who_may_log_in_is_listed_and_that_nobody_may_is_said() {
        assert!(listed(&vec![]).contains("operators add NAME"));
        let operator = |name: &str, of_site| Operator {
            name: PersonName::parse(name).unwrap(),
            role: Role::Admin,
            of_site,
        };
        let text = listed(&vec![operator("ada", true), operator("ben", false)]);
        assert_eq!(
            text,
            "ada                  admin     of site.yaml\nben                  admin\n"
        );
    }
}

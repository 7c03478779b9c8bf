//! What the page offers by who reads it: the way in, and verbs of servers.

use std::fmt::{self, Write as _};

use firstlight_api::{
    status::{HostStatus, SiteStatus},
    verb::{self, Insistence, Manner, Owner, Verb},
};

use super::{Reader, Text};

pub fn write_entrance(out: &mut String, reader: Reader) -> fmt::Result {
    out.write_str(match reader {
        Reader::Anybody => {
            "<p class=\"dim\">Nobody has to log in to read this, and nobody can change anything here, until there is a <a href=\"/first\">first \
             operator</a>.</p>\n"
        }
        Reader::Viewer | Reader::Operator => {
            "<form method=\"post\" action=\"/api/v1/logout\"><p class=\"dim\"><a href=\"/people\">People</a> <a href=\"/update\">Update</a> <button>Log out</button></p></form>\n"
        }
    })
}

/// A button for each verb that the server takes now. What ends somebody's work is asked for twice.
pub fn write_verbs(out: &mut String, status: &SiteStatus, host: &HostStatus) -> fmt::Result {
    let owner = Owner::of(status, host);
    let mut buttons = String::new();
    for verb in Verb::ALL {
        if verb.patch(Manner::Soft).is_none() {
            continue;
        }
        let refusal = verb::refusal(verb, Manner::Soft, host, owner.as_ref());
        let sure = match refusal {
            None => "",
            Some(refusal) if refusal.unless == Some(Insistence::Yes) => {
                write!(
                    buttons,
                    "<details><summary>{}</summary><p>{}</p>",
                    verb.as_str(),
                    Text(&refusal.why)
                )?;
                "<input type=\"hidden\" name=\"yes\" value=\"yes\">"
            }
            Some(_) => continue,
        };
        write!(
            buttons,
            "<form method=\"post\" action=\"/api/v1/hosts/{}/{}\">{sure}<button>{}</button></form>",
            Text(&host.name),
            verb.word(),
            verb.as_str()
        )?;
        if !sure.is_empty() {
            buttons.push_str("</details>");
        }
    }
    if buttons.is_empty() {
        return Ok(());
    }
    writeln!(out, "<div class=\"verbs\">{buttons}</div>")
}

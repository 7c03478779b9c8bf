//! Why an order is not carried out, with what to do.

use anyhow::Error;
use firstlight_api::status::Problem;

/// An error that a person has to read.
#[derive(Debug)]
pub struct Refusal(pub Problem);

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0.what)
    }
}

impl std::error::Error for Refusal {}

pub fn refuse(what: impl Into<String>, next: impl Into<String>) -> Error {
    Refusal(Problem {
        what: what.into(),
        next: next.into(),
    })
    .into()
}

/// What is told of any error.
pub fn describe(error: &Error) -> Problem {
    match error.downcast_ref::<Refusal>() {
        Some(Refusal(problem)) => problem.clone(),
        None => Problem {
            what: format!("{error:#}"),
            next: "the running system is as it was; try again, and if that fails again, move on to another stick".to_owned(),
        },
    }
}

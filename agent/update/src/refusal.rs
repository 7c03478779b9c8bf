//! Why an order is not carried out, with what to do.

use anyhow::Error;
use firstlight_api::status::Problem;

/// An error that a person has to read.
pub fn refuse(what: impl Into<String>, next: impl Into<String>) -> Error {
    let (what, next) = (what.into(), next.into());
    Problem { what, next }.into()
}

/// What is told of any error.
pub fn describe(error: &Error) -> Problem {
    match error.downcast_ref::<Problem>() {
        Some(problem) => problem.clone(),
        None => Problem {
            what: format!("{error:#}"),
            next: "the running system is as it was; try again, and if that fails again, move on to another stick".to_owned(),
        },
    }
}

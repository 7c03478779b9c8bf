//! What to do next: pure, so that every situation is a line in a test.

use std::time::Duration;

use crate::answer::{Answer, Data, Receipt};

/// Before asking again after something went wrong; the box may just be starting.
const AGAIN: Duration = Duration::from_secs(10);
/// Nothing but a restart into the network can follow: no hurry.
const RARELY: Duration = Duration::from_mins(1);

/// What this disk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Nothing,
    /// Bootstrap data whose receipt the box has not confirmed: SHA-256 of the user data, in hex.
    Unconfirmed(String),
    Confirmed,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Pause {
        length: Duration,
        /// A sentence for the console, where something is wrong.
        why: Option<String>,
    },
    Store(Box<Data>),
    Confirmed,
    Restart,
}

/// After asking for data that this disk does not hold.
pub fn after_answer(answer: Answer) -> Step {
    match answer {
        Answer::Wait(length) => Step::Pause { length, why: None },
        Answer::Data(data) if !data.meta_data.get("uuid").is_some_and(serde_json::Value::is_string) => {
            Step::Pause {
                length: AGAIN,
                why: Some("The box sent metadata without a uuid, which cloud-init needs.".to_owned()),
            }
        }
        Answer::Data(data) => Step::Store(data),
        Answer::Restart => Step::Restart,
        Answer::Spent => Step::Pause {
            length: RARELY,
            why: Some(
                "The box has handed out this server's bootstrap data, but this disk does not hold it. Delete the \
                 server's Machine, and it is installed again."
                    .to_owned(),
            ),
        },
        Answer::Unclear(why) => Step::Pause {
            length: AGAIN,
            why: Some(why),
        },
    }
}

/// After confirming what this disk holds.
pub fn after_receipt(receipt: Receipt) -> Step {
    match receipt {
        Receipt::Taken => Step::Confirmed,
        Receipt::Unclear(why) => Step::Pause {
            length: AGAIN,
            why: Some(why),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn data(meta_data: &serde_json::Value) -> Data {
        Data {
            user_data: "x".to_owned(),
            meta_data: meta_data.as_object().unwrap().clone(),
            network_data: None,
            host_key: None,
        }
    }

    #[test]
    fn each_answer_has_one_next_step() {
        let good = Box::new(data(&json!({"uuid": "u"})));
        let pause = |seconds, why: Option<&str>| Step::Pause {
            length: Duration::from_secs(seconds),
            why: why.map(str::to_owned),
        };
        let cases = [
            (Answer::Wait(Duration::from_secs(3)), pause(3, None)),
            (Answer::Data(good.clone()), Step::Store(good)),
            (Answer::Restart, Step::Restart),
            (
                Answer::Unclear("Busy.".to_owned()),
                pause(10, Some("Busy.")),
            ),
        ];
        for (answer, step) in cases {
            assert_eq!(after_answer(answer), step);
        }
    }

    #[test]
    fn data_that_cannot_be_used_is_neither_stored_nor_confirmed() {
        for answer in [
            Answer::Data(Box::new(data(&json!({"name": "n1"})))),
            Answer::Spent,
        ] {
            let Step::Pause { why: Some(why), .. } = after_answer(answer.clone()) else {
                panic!("{answer:?} must wait with a reason");
            };
            assert!(why.ends_with('.'), "{why}");
        }
    }

    #[test]
    fn only_a_taken_receipt_ends_the_waiting() {
        assert_eq!(after_receipt(Receipt::Taken), Step::Confirmed);
        assert!(matches!(
            after_receipt(Receipt::Unclear("x".to_owned())),
            Step::Pause { why: Some(_), .. }
        ));
    }
}

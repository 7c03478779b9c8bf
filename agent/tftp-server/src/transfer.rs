//! One transfer as a state machine: packets and the time go in, [`Action`]s come out. It knows the file's size, not its bytes.

use std::time::Duration;

use crate::options::Negotiated;

/// The longest pause before a retransmission.
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// How often the same thing is sent in vain: with the default timeout the client has 31 seconds.
const MAX_RETRIES: u32 = 5;

/// What a transfer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Also once at the very beginning, and whenever [`Transfer::deadline`] has come.
    Tick,
    /// The low 16 bits of the block that was acknowledged.
    Ack(u16),
    /// The client gave up.
    ClientError {
        /// Of [`ErrorCode`](crate::ErrorCode) or any other.
        code: u16,
        /// For the log.
        message: String,
    },
    /// Nobody listens on the client's port any more.
    ClientGone,
}

/// What a client was last seen to do. Who comes with the same request from the same port is this client once more: a copy
/// of its request that came late, or a new start of its firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// It has not answered the first packet yet; whoever sent the request may have forged its address.
    Asked,
    /// It has answered, the last time in time.
    Answers,
    /// It had answered, and something had to be sent to it again since.
    Silent,
    /// The transfer is over.
    Left,
}

/// Blocks to send, counted from 1 without rolling over; block `n` has the bytes from `(n - 1) * block_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Counted from 1.
    pub first: u64,
    /// At most the window.
    pub count: u64,
}

/// What the edge has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the option acknowledgement.
    SendOack(Vec<u8>),
    /// Send them in this order.
    SendBlocks(Blocks),
    /// It is over; nothing more is to be sent or expected.
    Finish(Outcome),
    /// Nothing until the next packet or the deadline.
    Nothing,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client has all of it.
    Complete,
    /// The client said that it wants no more; firmware does so when it only wanted to know the size.
    ClientError {
        /// As the client sent it.
        code: u16,
        /// As the client sent it.
        message: String,
    },
    /// The client closed its port without a word when it had acknowledged so many bytes.
    ClientGone {
        /// Of the file, in bytes.
        acknowledged: u64,
    },
    /// The client stopped answering when it had acknowledged so many bytes.
    TimedOut {
        /// Of the file, in bytes.
        acknowledged: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The OACK is to be acknowledged as block 0.
    Offered,
    /// Blocks up to `acked` are there, those up to `sent` are under way.
    Sending {
        acked: u64,
        sent: u64,
        copies: Copies,
        complaints: Complaints,
    },
    Finished,
}

/// Whether blocks of the window were sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    First,
    Again,
}

/// Whether another acknowledgement of the same block means that the window behind it was lost. Not with a window of one
/// block (RFC 1123 section 4.2.3.1), not when it was answered already, and not while copies of the window before may still
/// arrive, for each of which a client may acknowledge again: else every window would be sent twice from then on
/// (Sorcerer's Apprentice).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complaints {
    Heard,
    Ignored,
}

/// One file on its way to one client.
#[derive(Clone, Debug)]
pub struct Transfer {
    settings: Negotiated,
    oack: Option<Vec<u8>>,
    size: u64,
    last_block: u64,
    state: State,
    started: bool,
    answered: bool,
    deadline: Duration,
    pause: Duration,
    retries: u32,
}

impl Transfer {
    /// `oack` as [`Negotiated::new`] made it. Time is what the caller's steady clock shows. Begin with an [`Input::Tick`].
    pub fn new(settings: Negotiated, oack: Option<Vec<u8>>, size: u64, now: Duration) -> Self {
        let state = if oack.is_some() {
            State::Offered
        } else {
            State::Sending {
                acked: 0,
                sent: 0,
                copies: Copies::First,
                complaints: Complaints::Heard,
            }
        };
        Self {
            settings,
            oack,
            size,
            // A block that is not full ends the file, be it an empty one (RFC 1350 section 6).
            last_block: size / u64::from(settings.block_size) + 1,
            state,
            started: false,
            answered: false,
            deadline: now,
            pause: settings.timeout,
            retries: 0,
        }
    }

    /// What was agreed on.
    pub fn settings(&self) -> Negotiated {
        self.settings
    }

    /// When [`Input::Tick`] is due unless something comes before.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// How many bytes the client has for sure.
    pub fn acknowledged(&self) -> u64 {
        match self.state {
            State::Offered => 0,
            State::Sending { acked, .. } => {
                (acked * u64::from(self.settings.block_size)).min(self.size)
            }
            State::Finished => self.size,
        }
    }

    /// What the same request from the same port means depends on it.
    pub fn client(&self) -> Client {
        match self.state {
            State::Finished => Client::Left,
            _ if !self.answered => Client::Asked,
            _ if self.retries == 0 => Client::Answers,
            _ => Client::Silent,
        }
    }

    /// `now` is on the clock of [`Transfer::new`]. An input that changes nothing is [`Action::Nothing`].
    pub fn handle(&mut self, input: Input, now: Duration) -> Action {
        match input {
            _ if self.state == State::Finished => Action::Nothing,
            Input::Tick if now < self.deadline => Action::Nothing,
            Input::Tick => self.tick(now),
            Input::Ack(block) => self.acknowledge(block, now),
            Input::ClientError { code, message } => {
                self.finish(Outcome::ClientError { code, message })
            }
            Input::ClientGone => {
                let acknowledged = self.acknowledged();
                self.finish(Outcome::ClientGone { acknowledged })
            }
        }
    }

    fn tick(&mut self, now: Duration) -> Action {
        if !self.started {
            self.started = true;
            self.deadline = now + self.pause;
            return self.send_again(now);
        }
        if self.retries == MAX_RETRIES {
            let acknowledged = self.acknowledged();
            return self.finish(Outcome::TimedOut { acknowledged });
        }
        self.retries += 1;
        self.pause = (self.pause * 2).min(MAX_PAUSE.max(self.settings.timeout));
        self.deadline = now + self.pause;
        self.send_again(now)
    }

    /// Sends what is not acknowledged; for a window all of it, as nobody knows what was lost (RFC 7440 section 4).
    fn send_again(&mut self, now: Duration) -> Action {
        match (&self.oack, self.state) {
            (Some(oack), State::Offered) => Action::SendOack(oack.clone()),
            (_, State::Sending { acked, sent, .. }) => {
                let copies = if sent > acked {
                    Copies::Again
                } else {
                    Copies::First
                };
                self.send_from(acked, copies, Complaints::Heard, now)
            }
            _ => Action::Nothing,
        }
    }

    fn send_from(
        &mut self,
        acked: u64,
        copies: Copies,
        complaints: Complaints,
        now: Duration,
    ) -> Action {
        let count = u64::from(self.settings.window).min(self.last_block - acked);
        self.state = State::Sending {
            acked,
            sent: acked + count,
            copies,
            complaints,
        };
        self.deadline = self.deadline.max(now + self.pause);
        Action::SendBlocks(Blocks {
            first: acked + 1,
            count,
        })
    }

    fn acknowledge(&mut self, block: u16, now: Duration) -> Action {
        match self.state {
            State::Offered if block == 0 => self.progress(0, Copies::First, Complaints::Heard, now),
            State::Sending {
                acked,
                sent,
                copies,
                complaints,
            } => {
                // How far ahead of `acked`, in numbers that roll over: what is further than was sent, is old.
                #[expect(clippy::cast_possible_truncation, reason = "block numbers roll over")]
                let ahead = u64::from(block.wrapping_sub(acked as u16));
                let now_acked = acked + ahead;
                match ahead {
                    _ if now_acked > sent => Action::Nothing,
                    _ if now_acked == self.last_block => self.finish(Outcome::Complete),
                    0 if self.settings.window == 1 || complaints == Complaints::Ignored => {
                        Action::Nothing
                    }
                    // The first block of the window was lost.
                    0 => self.send_from(acked, Copies::Again, Complaints::Ignored, now),
                    // Less than all of the window: the block behind was lost, and the window starts anew there.
                    _ if now_acked < sent => {
                        self.progress(now_acked, Copies::Again, Complaints::Ignored, now)
                    }
                    _ if copies == Copies::Again => {
                        self.progress(now_acked, Copies::First, Complaints::Ignored, now)
                    }
                    _ => self.progress(now_acked, Copies::First, Complaints::Heard, now),
                }
            }
            _ => Action::Nothing,
        }
    }

    fn progress(
        &mut self,
        acked: u64,
        copies: Copies,
        complaints: Complaints,
        now: Duration,
    ) -> Action {
        self.answered = true;
        self.retries = 0;
        self.pause = self.settings.timeout;
        self.deadline = now + self.pause;
        self.send_from(acked, copies, complaints, now)
    }

    fn finish(&mut self, outcome: Outcome) -> Action {
        self.state = State::Finished;
        Action::Finish(outcome)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

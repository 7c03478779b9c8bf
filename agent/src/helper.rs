//! The conversation with `firstlight-update`, which has the rights over the stick that the agent has not.

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use firstlight_api::update::{HelperOrder, HelperReply, LONGEST_LINE};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

use crate::paths::Paths;

/// One order and what is said to it.
pub struct Conversation {
    replies: BufReader<OwnedReadHalf>,
    orders: OwnedWriteHalf,
}

impl Conversation {
    pub async fn begin(paths: &Paths, order: &HelperOrder) -> Result<Self> {
        let socket = paths.update_socket();
        let stream = UnixStream::connect(&socket).await.with_context(|| {
            format!(
                "opening {}: updates are for a box that runs from a stick",
                socket.display()
            )
        })?;
        let (replies, mut orders) = stream.into_split();
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        ensure!(line.len() <= LONGEST_LINE, "the system has too many layers");
        orders.write_all(&line).await.context("ordering")?;
        Ok(Self {
            replies: BufReader::new(replies),
            orders,
        })
    }

    /// The last thing that it says. What it says before goes to `tell`.
    pub async fn end(
        self,
        pieces: Option<mpsc::Receiver<Bytes>>,
        mut tell: impl FnMut(u64, u64),
    ) -> Result<HelperReply> {
        let Self {
            mut replies,
            mut orders,
        } = self;
        let sending = async move {
            if let Some(mut pieces) = pieces {
                while let Some(piece) = pieces.recv().await {
                    // It says why it listens no longer.
                    if orders.write_all(&piece).await.is_err() {
                        break;
                    }
                }
            }
            drop(orders.shutdown().await);
        };
        let hearing = async {
            loop {
                match hear(&mut replies).await? {
                    HelperReply::Progress { done, of } => tell(done, of),
                    reply => return Ok::<_, anyhow::Error>(reply),
                }
            }
        };
        let (reply, ()) = tokio::join!(hearing, sending);
        reply
    }
}

async fn hear(replies: &mut BufReader<OwnedReadHalf>) -> Result<HelperReply> {
    let mut line = Vec::new();
    replies
        .take(LONGEST_LINE as u64)
        .read_until(b'\n', &mut line)
        .await
        .context("hearing the answer")?;
    ensure!(
        !line.is_empty(),
        "it ended without an answer: see `journalctl -u 'firstlight-update@*'`"
    );
    serde_json::from_slice(&line).context("the answer cannot be read")
}

/// For a question that is answered at once.
pub async fn ask(paths: &Paths, order: &HelperOrder) -> Result<HelperReply> {
    let conversation = Conversation::begin(paths, order).await?;
    match conversation.end(None, |_, _| {}).await? {
        HelperReply::Refused(problem) => Err(problem.into()),
        reply => Ok(reply),
    }
}

pub fn unexpected(reply: &HelperReply) -> anyhow::Error {
    anyhow!("it said {reply:?}, which is no answer to that")
}

//! The commands of this registration, oldest first, as the command API shows them.
//!
//! One runs at a time. Ironic looks at the last entry and takes an empty list for a ramdisk that has just booted.

use serde_json::{Value, json};
use uuid::Uuid;

use super::event::Failure;

#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub id: Uuid,
    /// With its extension, e.g. `deploy.execute_deploy_step`.
    pub name: String,
    pub state: State,
    /// Requests that are answered when it ends.
    pub waiting: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Running,
    Succeeded(Value),
    Failed(Failure),
}

impl Command {
    /// The command object of the API.
    pub fn to_json(&self) -> Value {
        let (status, result, error) = match &self.state {
            State::Running => ("RUNNING", Value::Null, Value::Null),
            State::Succeeded(result) => ("SUCCEEDED", result.clone(), Value::Null),
            State::Failed(failure) => ("FAILED", Value::Null, error_json(failure)),
        };
        let (_, short) = self.name.split_once('.').unwrap_or(("", &self.name));
        json!({
            "id": self.id, "command_name": short, "command_status": status,
            "command_result": result, "command_error": error,
        })
    }
}

/// `details` is what Ironic copies to the node's `last_error`.
fn error_json(failure: &Failure) -> Value {
    json!({
        "type": "CommandExecutionError", "code": 500,
        "message": "Command execution failed", "details": failure.reason,
    })
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commands {
    list: Vec<Command>,
}

impl Commands {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn push(&mut self, command: Command) {
        self.list.push(command);
    }

    pub fn get(&self, id: &str) -> Option<&Command> {
        let id = Uuid::parse_str(id).ok()?;
        self.list.iter().find(|c| c.id == id)
    }

    pub fn running(&self) -> Option<&Command> {
        self.list.iter().find(|c| c.state == State::Running)
    }

    /// Ends a command; gives it back with the requests that waited for it. `None`: no such command runs.
    pub fn finish(
        &mut self,
        id: Uuid,
        result: Result<Value, Failure>,
    ) -> Option<(&Command, Vec<u64>)> {
        let command = self
            .list
            .iter_mut()
            .find(|c| c.id == id && c.state == State::Running)?;
        command.state = match result {
            Ok(value) => State::Succeeded(value),
            Err(failure) => State::Failed(failure),
        };
        let waiting = std::mem::take(&mut command.waiting);
        Some((command, waiting))
    }

    /// Forgets everything; gives back the requests that still waited.
    pub fn clear(&mut self) -> Vec<u64> {
        self.list.drain(..).flat_map(|c| c.waiting).collect()
    }

    pub fn to_json(&self) -> Value {
        json!({"commands": self.list.iter().map(Command::to_json).collect::<Vec<_>>()})
    }
}

//! What containerd starts for an interface of a pod, by the specification of the Container Network Interface: it hands the request to the
//! addon's pod on this node ([`crate::attach`]), which may do what is to be done, and prints its answer.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    process::ExitCode,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Of the pod on this node, for root.
pub const SOCKET: &str = "/run/firstlight-ovn/plugin.sock";
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// What a configuration or an answer may have.
pub const MOST: u64 = 1 << 20;
/// containerd waits for two minutes.
const PATIENCE: Duration = Duration::from_secs(110);
/// "Try again later" of the specification.
const LATER: u32 = 11;

/// A request as it goes to the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub command: String,
    pub container: String,
    /// Path of the network namespace.
    pub netns: String,
    pub interface: String,
    /// `KEY=VALUE;KEY=VALUE`, see [`Request::argument`].
    pub arguments: String,
    pub config: Value,
}

/// `Err`: code and sentence, as the specification has them.
pub type Answer = Result<Value, (u32, String)>;

impl Request {
    pub fn argument(&self, name: &str) -> Option<&str> {
        let pairs = self
            .arguments
            .split(';')
            .filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(key, _)| *key == name);
        found.next().map(|(_, value)| value)
    }

    pub fn version(&self) -> &str {
        self.config["cniVersion"].as_str().unwrap_or("0.3.1")
    }
}

pub fn main() -> ExitCode {
    let mut text = String::new();
    let read = io::stdin().lock().take(MOST).read_to_string(&mut text);
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let request = Request {
        command: variable("CNI_COMMAND"),
        container: variable("CNI_CONTAINERID"),
        netns: variable("CNI_NETNS"),
        interface: variable("CNI_IFNAME"),
        arguments: variable("CNI_ARGS"),
        config: serde_json::from_str(&text).unwrap_or_default(),
    };
    let answer = match read {
        Ok(_) => answer(&request, SOCKET),
        Err(error) => Err((5, format!("reading the configuration: {error}"))),
    };
    let (printed, code) = match answer {
        Ok(Value::Null) => (String::new(), ExitCode::SUCCESS),
        Ok(result) => (result.to_string(), ExitCode::SUCCESS),
        Err((code, message)) => {
            let error = json!({"cniVersion": request.version(), "code": code, "msg": message});
            (error.to_string(), ExitCode::FAILURE)
        }
    };
    drop(io::stdout().write_all(printed.as_bytes()));
    code
}

fn answer(request: &Request, socket: &str) -> Answer {
    if request.command == "VERSION" {
        return Ok(json!({"cniVersion": "1.1.0", "supportedVersions": VERSIONS}));
    }
    match ask(request, socket) {
        Ok(answer) => answer,
        // The addon may have been taken away; what is left goes with the namespace.
        Err(_) if ["DEL", "GC"].contains(&&*request.command) => Ok(Value::Null),
        Err(error) => Err((
            LATER,
            format!(
                "the addon ovn does not answer on this node ({error}): `kubectl get pods -n kube-system -l app=ovn-node -o wide`"
            ),
        )),
    }
}

fn ask(request: &Request, socket: &str) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(request)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(MOST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{os::unix::net::UnixListener, thread};

    use super::*;

    #[test]
    fn a_request_goes_to_the_pod_and_its_answer_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let answer: Answer = Err((7, "no".to_owned()));
            stream
                .write_all(&serde_json::to_vec(&answer).unwrap())
                .unwrap();
            serde_json::from_str::<Request>(&text).unwrap()
        });
        let request = Request {
            command: "ADD".to_owned(),
            arguments: "IgnoreUnknown=1;K8S_POD_NAME=a;K8S_POD_UID=7".to_owned(),
            ..Request::default()
        };
        assert_eq!(request.argument("K8S_POD_UID"), Some("7"));
        let told = answer(&request, path.to_str().unwrap());
        assert_eq!(told, Err((7, "no".to_owned())));
        assert_eq!(served.join().unwrap(), request);
    }

    #[test]
    fn without_the_addon_interfaces_go_and_none_come() {
        let of = |command: &str| Request {
            command: command.to_owned(),
            ..Request::default()
        };
        assert_eq!(answer(&of("DEL"), "/nowhere"), Ok(Value::Null));
        assert_eq!(answer(&of("ADD"), "/nowhere").unwrap_err().0, LATER);
        let versions = answer(&of("VERSION"), "/nowhere").unwrap();
        assert_eq!(versions["supportedVersions"][2], "1.0.0");
    }
}

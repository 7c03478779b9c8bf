//! The document is made here, route by route. To add one: a line in [`routes`].
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use firstlight_api::{
    artifact::{Artifact, ArtifactSpec},
    backup::BackupFile,
    edge::EdgeReport,
    people::{AuditLine, CertificateView, MadeToken, Me, NewOperator, NewToken, Operator, Token},
    receipt::{Envelope, Receipt},
    slot::SystemContent,
    status::SiteStatus,
    update::{UpdateHeader, UpdateView},
};
use http::Method;
use schemars::{
    JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, transform::transform_subschemas,
};
use serde_json::{Map, Value, json};

use crate::web::people::gate::{COOKIE, Need, need};

const GOLDEN: &str = "src/web/golden/openapi.json";
const JSON: &str = "application/json";
const STREAM: &str = "application/octet-stream";

/// What is sent, or comes back.
enum Content {
    Nothing,
    /// As JSON.
    Of(fn(&mut SchemaGenerator) -> Schema),
    /// As JSON, without a type of ours.
    Plain(Value),
    /// Of this media type.
    Raw(&'static str),
}

use Content::{Nothing, Plain, Raw};

fn of<T: JsonSchema>() -> Content {
    Content::Of(SchemaGenerator::subschema_for::<T>)
}

impl Content {
    fn value(&self, generator: &mut SchemaGenerator) -> Option<Value> {
        Some(match self {
            Nothing => return None,
            Self::Of(schema) => json!({JSON: {"schema": schema(generator)}}),
            Plain(schema) => json!({JSON: {"schema": schema}}),
            Raw(media) => json!({*media: {}}),
        })
    }
}

struct Route {
    method: Method,
    /// With `{words}` that stand for something.
    path: &'static str,
    says: &'static str,
    takes: Content,
    answers: Vec<(u16, &'static str, Content)>,
}

/// One that is answered with 200 if all is well.
fn reads(path: &'static str, says: &'static str, content: Content) -> Route {
    does(Method::GET, path, says, Nothing, 200, content)
}

fn does(
    method: Method,
    path: &'static str,
    says: &'static str,
    takes: Content,
    status: u16,
    content: Content,
) -> Route {
    Route {
        method,
        path,
        says,
        takes,
        answers: vec![(status, "As asked.", content)],
    }
}

impl Route {
    /// Another answer, with a sentence in it.
    fn or(mut self, status: u16, when: &'static str) -> Self {
        self.answers.push((status, when, Raw("text/plain")));
        self
    }

    fn need(&self) -> Need {
        need(&self.method, &self.path.replace(['{', '}'], ""))
    }

    fn operation(&self, generator: &mut SchemaGenerator) -> Value {
        let mut answers = Map::new();
        for (status, when, content) in &self.answers {
            let mut answer = json!({"description": when});
            if let Some(content) = content.value(generator) {
                answer["content"] = content;
            }
            answers.insert(status.to_string(), answer);
        }
        let mut operation = json!({"summary": self.says});
        if let Need::Role(role) = self.need() {
            operation["description"] = json!(format!("Takes the role `{role}`."));
            operation["security"] = json!([{"token": []}, {"session": []}]);
            let refused = [
                (401, "Log in, or send a token."),
                (403, "The role is not enough."),
            ];
            for (status, when) in refused {
                let answer = json!({"description": when, "content": {"text/plain": {}}});
                answers.entry(status.to_string()).or_insert(answer);
            }
        }
        operation["responses"] = Value::Object(answers);
        let words = self
            .path
            .split('/')
            .filter_map(|word| word.strip_prefix('{'));
        let parameters: Vec<Value> = words
            .map(|word| {
                let name = word.trim_end_matches('}');
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
            })
            .collect();
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        if let Some(content) = self.takes.value(generator) {
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        operation
    }
}

/// Texts by name.
fn texts(names: &[&str], needed: usize) -> Content {
    let properties = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})));
    let properties: Map<String, Value> = properties.collect();
    Plain(json!({"type": "object", "properties": properties, "required": names[..needed]}))
}

/// Of a person.
const UNFIT: &str = "What is wrong with the name, the role or the password.";

fn done(what: &str) -> Content {
    Plain(json!({"type": "object", "properties": {what: {"type": "boolean"}}}))
}

fn site() -> Vec<Route> {
    vec![
        reads("/api/v1/status", "Everything that a person wants to know of the site.", of::<SiteStatus>()),
        reads("/api/v1/events", "The same as server-sent events, one an update.", Raw("text/event-stream"))
            .or(503, "As many listen as may."),
        reads("/api/v1/edge", "Machines of the site's clusters, at most ten seconds old.", of::<EdgeReport>())
            .or(503, "The box's Kubernetes is not up yet."),
        reads("/api/v1/logs", "Lines of the site's logs, an object of JSON each, oldest first. `q`: words that all are in a line or its host's or unit's name; `step`: a part of a server's way; `start`: one start of a server; `hours`: 1 to 720; `limit`: 1 to 5000; `after`: only newer ones.", Raw("application/x-ndjson"))
            .or(400, "There is no such step.")
            .or(503, "Why they cannot be sought."),
        reads("/api/v1/logs/starts", "Starts of a server whose log has come, an object of JSON each, the last first. `q`: its name or MAC address.", Raw("application/x-ndjson"))
            .or(404, "There is no such server.")
            .or(503, "Why they cannot be sought."),
        reads("/api/v1/openapi.json", "This document.", Plain(json!({"type": "object"}))),
        reads("/api/v1/receipt", "What the box can prove of its site, signed by the site's CA.", of::<Envelope>())
            .or(409, "Why it cannot be made."),
        does(Method::POST, "/api/v1/hosts/{name}/{verb}", "Asks something of a server: retry, power-on, power-off, power-cycle, skip-inspection, spare, unspare, allow-kexec.",
            texts(&["mode", "yes"], 0), 204, Nothing)
            .or(404, "There is no such server, or verb.")
            .or(409, "Why it would do harm."),
    ]
}

fn store() -> Vec<Route> {
    let all = json!({"type": "object", "properties": {"artifacts": {"type": "array", "items": {"$ref": "#/components/schemas/Artifact"}}}});
    vec![
        reads(
            "/api/v1/artifacts",
            "What people have put on the box; `?kind=`, `name`, `version`, `arch`, `state` and `sha256` choose.",
            Plain(all),
        ),
        does(
            Method::POST,
            "/api/v1/artifacts",
            "Begins an upload, or finds one that was begun.",
            of::<ArtifactSpec>(),
            201,
            of::<Artifact>(),
        )
        .or(409, "Another content has this name.")
        .or(422, "What is wrong with the description."),
        reads("/api/v1/artifacts/{id}", "One of them.", of::<Artifact>()).or(404, "There is none."),
        does(
            Method::PATCH,
            "/api/v1/artifacts/{id}",
            "Sends bytes of it, from the header `Upload-Offset` on.",
            Raw(STREAM),
            200,
            of::<Artifact>(),
        )
        .or(
            409,
            "They belong elsewhere: the header `Upload-Offset` says where.",
        ),
        does(
            Method::DELETE,
            "/api/v1/artifacts/{id}",
            "Takes it away.",
            Nothing,
            204,
            Nothing,
        )
        .or(409, "What uses it."),
        reads(
            "/api/v1/artifacts/{id}/content",
            "Its bytes, with ranges.",
            Raw(STREAM),
        )
        .or(404, "There is none."),
    ]
}

fn entrance() -> Vec<Route> {
    vec![
        does(
            Method::POST,
            "/api/v1/login",
            "Begins a session, over TLS only.",
            texts(&["name", "password"], 2),
            204,
            Nothing,
        )
        .or(401, "That is not it.")
        .or(429, "Wait as long as `Retry-After` says.")
        .or(503, "Eight others log in now."),
        does(
            Method::POST,
            "/api/v1/first",
            "Makes the first person, with the code of the console.",
            texts(&["code", "name", "password"], 3),
            204,
            Nothing,
        )
        .or(409, "There is somebody already.")
        .or(422, "That is not the code, or no good password."),
        does(
            Method::POST,
            "/api/v1/logout",
            "Ends the session.",
            Nothing,
            303,
            Nothing,
        ),
        reads("/api/v1/me", "Who you are.", of::<Me>()),
        does(
            Method::POST,
            "/api/v1/password",
            "Gives you another password, and ends your sessions.",
            texts(&["old", "password"], 2),
            204,
            Nothing,
        )
        .or(422, UNFIT),
    ]
}

fn people() -> Vec<Route> {
    vec![
        reads(
            "/api/v1/operators",
            "People who may log in.",
            of::<Vec<Operator>>(),
        ),
        does(
            Method::POST,
            "/api/v1/operators",
            "Lets somebody log in.",
            of::<NewOperator>(),
            201,
            Nothing,
        )
        .or(409, "There is one of that name.")
        .or(422, UNFIT),
        does(
            Method::PATCH,
            "/api/v1/operators/{name}",
            "Another role or password.",
            texts(&["role", "password"], 0),
            204,
            Nothing,
        )
        .or(409, "It is the last admin, or somebody of site.yaml.")
        .or(422, UNFIT),
        does(
            Method::DELETE,
            "/api/v1/operators/{name}",
            "Lets somebody log in no more.",
            Nothing,
            204,
            Nothing,
        )
        .or(409, "It is the last admin, or somebody of site.yaml."),
        reads("/api/v1/tokens", "Tokens of programs.", of::<Vec<Token>>()),
        does(
            Method::POST,
            "/api/v1/tokens",
            "Makes one; it is shown in this answer alone.",
            of::<NewToken>(),
            201,
            of::<MadeToken>(),
        )
        .or(409, "There is one of that name.")
        .or(422, "What is wrong with the name, the role or the days."),
        does(
            Method::DELETE,
            "/api/v1/tokens/{name}",
            "Takes it away.",
            Nothing,
            204,
            Nothing,
        )
        .or(404, "There is none."),
        reads(
            "/api/v1/audit",
            "What was done, by whom and from where, oldest first.",
            of::<Vec<AuditLine>>(),
        ),
    ]
}

fn the_box() -> Vec<Route> {
    let why = "Why not, and what to do.";
    let send = Plain(
        json!({"type": "object", "properties": {"send": {"type": "array", "items": {"type": "string"}}}}),
    );
    let key = Plain(json!({"type": "object", "properties": {"recoveryKey": {"type": "string"}}}));
    vec![
        reads("/api/v1/update", "The systems of the stick.", of::<UpdateView>()).or(409, why),
        does(Method::POST, "/api/v1/update/plan", "Which layers of a system have to be sent.", of::<SystemContent>(), 200, send).or(409, why),
        does(Method::POST, "/api/v1/update/layers", "Writes another system: a line with an `UpdateHeader`, then the bytes of the layers that it names.", Raw(STREAM), 200, done("written"))
            .or(409, why),
        does(Method::POST, "/api/v1/update/image", "Writes another system out of a whole image.", Raw(STREAM), 200, done("written")).or(409, why),
        does(Method::POST, "/api/v1/update/start", "Restarts the box into the other system, once.", Nothing, 200, done("restarts")).or(409, why),
        does(Method::POST, "/api/v1/update/seal", "Another recovery key for what the box remembers; it is shown in this answer alone.", Nothing, 200, key).or(409, why),
        does(Method::POST, "/api/v1/update/backup", "Makes a backup onto the stick.", Nothing, 200, of::<BackupFile>()).or(409, why),
        reads("/api/v1/certificate", "The page's own certificate, if it has one.", of::<CertificateView>()).or(404, "It has the site's own."),
        does(Method::PUT, "/api/v1/certificate", "Puts one there: certificates and key, PEM.", Raw("application/x-pem-file"), 200, of::<CertificateView>())
            .or(422, "What is wrong with them."),
        does(Method::DELETE, "/api/v1/certificate", "Takes it away.", Nothing, 204, Nothing),
    ]
}

fn ramdisks() -> Vec<Route> {
    let refused = "It is not signed by the key that it names.";
    vec![
        does(
            Method::POST,
            "/api/v1/ramdisk/report",
            "What a server's ramdisk says of it; signed (docs/reference.md).",
            Raw(JSON),
            200,
            Raw(JSON),
        )
        .or(401, refused),
        does(
            Method::POST,
            "/api/v1/ramdisk/progress",
            "How far an installation is; signed.",
            Raw(JSON),
            200,
            Raw(JSON),
        )
        .or(401, refused)
        .or(409, "It is not believed."),
    ]
}

fn routes() -> Vec<Route> {
    [site(), store(), entrance(), people(), the_box(), ramdisks()]
        .into_iter()
        .flatten()
        .collect()
}

/// Words of rustdoc's that lead nowhere here.
fn without_links(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text
            .replace("[`crate::", "[`")
            .replace("[`", "`")
            .replace("`]", "`");
    }
    transform_subschemas(&mut without_links, schema);
}

fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.with_transform(without_links).into_generator();
    // The first line of an update, and what is in an envelope: no route has them alone.
    generator.subschema_for::<UpdateHeader>();
    generator.subschema_for::<Receipt>();
    let mut paths = Map::new();
    for route in routes() {
        let operation = route.operation(&mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Firstlight",
            "version": "1",
            "description": "What a box can be asked under /api. In version 1 nothing that is here goes or gets another meaning; more may come, so pass over what you do not know.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "https://172.22.0.1", "description": "The box, as site.yaml names it (docs/people.md)."}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`firstlight tokens make`."},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "`POST /api/v1/login`."},
            },
        },
    })
}

#[test]
fn the_published_document_is_of_these_types() {
    let made = format!("{:#}\n", document());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &made).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert!(
        made == golden,
        "{GOLDEN} changed; renew it with UPDATE_GOLDEN=1 and read the difference: version 1 takes nothing away"
    );
}

/// Every route that is tried as everybody is described, whatever its method.
#[test]
fn each_route_is_described() {
    let described: BTreeSet<(String, Vec<String>)> = routes()
        .into_iter()
        .map(|route| {
            let words = route.path.split('/').map(str::to_owned).collect();
            (route.method.to_string(), words)
        })
        .collect();
    let is_like = |path: &str, words: &[String]| {
        let asked: Vec<&str> = path.split('/').collect();
        let mut pairs = asked.iter().zip(words);
        asked.len() == words.len()
            && pairs.all(|(asked, word)| asked == word || word.starts_with('{'))
    };
    let tried = crate::web::people::tests::ROUTES.iter();
    // Forms of the page end with another word; the last two are nothing.
    let of_api = tried.filter(|(method, path, _)| {
        path.starts_with("/api/")
            && !path.ends_with("/remove")
            && !matches!(
                (*method, *path),
                ("POST", "/api/v1/status") | (_, "/api/v1/no-such-thing")
            )
    });
    for (method, path, _) in of_api {
        let found = described
            .iter()
            .any(|(known, words)| known == method && is_like(path, words));
        assert!(found, "{method} {path} is not described");
    }
}

#[test]
fn every_schema_that_is_named_is_there() {
    let document = document();
    let text = document.to_string();
    let mut rest = text.as_str();
    let mut count = 0;
    while let Some(at) = rest.find("\"#/components/schemas/") {
        rest = &rest[at + "\"#/components/schemas/".len()..];
        let name = rest.split('"').next().unwrap();
        assert!(
            document["components"]["schemas"][name].is_object(),
            "{name}"
        );
        count += 1;
    }
    assert!(count > 20, "{count}");
}

//! Metrics and logs of the box, for who may look: `/monitoring/metrics/…` and `/monitoring/logs/…` are what `VictoriaMetrics` and
//! `VictoriaLogs` answer, as far as it only reads; `/logs` is a page and `/api/v1/logs` the same for programs.
//!
//! `query` makes `LogsQL` of what a person seeks, and reads the answer; `servers` takes logs and metrics of servers, `clean` what nobody should read
//! out of logs, and `exposition` says whose metrics are.

mod clean;
mod exposition;
mod query;
mod servers;

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use firstlight_api::{logs::STEPS, status::HostStatus};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming};
use maud::{Markup, html};
use serde::Serialize;

use super::{Body, Web, html as page_of, page, refusal, text};
use crate::monitoring::{ask, client};
use query::{Line, Search, Start};
pub use servers::Servers;

pub const PATH: &str = "/monitoring/";
pub const LOGS_PAGE: &str = "/logs";
/// Of `VictoriaMetrics`' own page.
pub const DASHBOARDS: &str = "/monitoring/metrics/vmui/#/dashboards";
pub const LOGS: &str = "/api/v1/logs";
pub const STARTS: &str = "/api/v1/logs/starts";

/// Whether it is about logs and metrics, which say more of the box than its page does, and take its time: before there are people they are
/// for who is on the box.
pub fn is_theirs(path: &str) -> bool {
    path.starts_with(PATH) || matches!(path, LOGS | STARTS | LOGS_PAGE)
}

/// Of a question.
const LARGEST_QUERY: usize = 64 << 10;
/// Of an answer that is shown.
const LARGEST: usize = 8 << 20;
/// Until an answer begins.
const TIME: Duration = Duration::from_mins(1);
const PASSED: [HeaderName; 4] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::ETAG,
];

/// Where the two listen, on the box itself.
#[derive(Clone, Copy, Debug)]
pub struct Engines {
    pub metrics: SocketAddr,
    pub logs: SocketAddr,
}

impl Default for Engines {
    /// As their units say.
    fn default() -> Self {
        let at = |port: u16| ([127, 0, 0, 1], port).into();
        Self {
            metrics: at(8428),
            logs: at(9428),
        }
    }
}

impl Engines {
    /// Who answers a path, if it only reads.
    fn of(&self, path: &str) -> Option<SocketAddr> {
        let below = path.strip_prefix(PATH)?;
        if let Some(asked) = below.strip_prefix("logs/select/") {
            let reads = asked.starts_with("vmui/") || asked.starts_with("logsql/");
            return reads.then_some(self.logs);
        }
        let asked = below.strip_prefix("metrics/")?;
        let asked = asked.strip_prefix("prometheus/").unwrap_or(asked);
        let reads = match asked.strip_prefix("api/v1/") {
            Some(call) => {
                let calls = [
                    "query",
                    "query_range",
                    "series",
                    "labels",
                    "metadata",
                    "targets",
                    "rules",
                    "alerts",
                    "status/tsdb",
                    "status/buildinfo",
                ];
                calls.contains(&call) || call.starts_with("label/") && call.ends_with("/values")
            }
            None => asked.starts_with("vmui/") || asked == "federate",
        };
        reads.then_some(self.metrics)
    }
}

/// What one of them answers.
pub async fn answer(web: &Web, path: &str, request: Request<Incoming>) -> Response<Body> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::POST);
    let Some(engine) = web.engines.of(path).filter(|_| reads) else {
        return refusal(
            StatusCode::NOT_FOUND,
            "only what reads metrics and logs is here: docs/monitoring.md",
        );
    };
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_QUERY).collect().await else {
        return refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "a question is smaller than 64 KiB",
        );
    };
    let query = head.uri.query().map(|query| format!("?{query}"));
    let uri = format!("http://{engine}{path}{}", query.unwrap_or_default());
    let mut passed = Request::builder().method(head.method).uri(uri);
    for name in &PASSED {
        for value in head.headers.get_all(name) {
            passed = passed.header(name, value);
        }
    }
    let Ok(passed) = passed.body(Full::new(body.to_bytes())) else {
        return refusal(StatusCode::BAD_REQUEST, "this is no question");
    };
    match tokio::time::timeout(TIME, client().request(passed)).await {
        Ok(Ok(answered)) => passed_back(answered),
        Ok(Err(error)) => refusal(
            StatusCode::BAD_GATEWAY,
            format_args!("it does not answer: {error}; it starts last"),
        ),
        Err(_) => refusal(
            StatusCode::GATEWAY_TIMEOUT,
            "it does not answer in time; ask for less",
        ),
    }
}

fn passed_back(answered: Response<Incoming>) -> Response<Body> {
    let (head, body) = answered.into_parts();
    let mut response = Response::new(body.map_err(io::Error::other).boxed_unsync());
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    for name in &PASSED {
        for value in head.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    // Their pages are programs of somebody else's: they run nothing that is written into them, and load nothing from elsewhere.
    let policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; base-uri 'none'; frame-ancestors 'none'";
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    );
    response
}

/// What `VictoriaLogs` answers to a form.
async fn sought(web: &Web, form: String) -> Result<Bytes, String> {
    let asked = Request::post(format!(
        "http://{}/monitoring/logs/select/logsql/query",
        web.engines.logs
    ))
    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
    .body(Full::from(form))
    .map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIME, ask(asked, LARGEST)).await {
        Ok(answer) => answer.map_err(|error| format!("{error:#}")),
        Err(_) => Err("it does not answer in time; seek within fewer hours".to_owned()),
    }
}

/// The lines that a search finds, newest first.
async fn found(web: &Web, search: &Search) -> Result<Vec<Line>, String> {
    let form = search.form(|name| server(web, name).map(|host| host.mac));
    Ok(query::read(&sought(web, form).await?))
}

fn server(web: &Web, name: &str) -> Option<HostStatus> {
    let status = web.status.borrow();
    let mut hosts = status.hosts.iter();
    hosts
        .find(|host| host.name == name || host.mac == name)
        .cloned()
}

/// Of the server that the words name.
async fn starts_of(web: &Web, words: &str) -> Result<Option<(String, Vec<Start>)>, String> {
    let Some(host) = words.split_whitespace().find_map(|word| server(web, word)) else {
        return Ok(None);
    };
    let starts = query::read_starts(&sought(web, query::starts(&host.name)).await?);
    Ok(Some((host.name, starts)))
}

fn as_lines<T: Serialize>(values: impl Iterator<Item = T>) -> Response<Body> {
    let lines = values.filter_map(|value| serde_json::to_string(&value).ok());
    let lines: String = lines.map(|line| line + "\n").collect();
    text(StatusCode::OK, "application/x-ndjson", lines)
}

fn unsought(why: &str) -> Response<Body> {
    let why = format_args!("the logs cannot be sought: {why}");
    refusal(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// `GET /api/v1/logs?q=WORDS&step=STEP&start=ID&hours=N&limit=N&after=TIME`: a line of JSON each, oldest first.
pub async fn logs(web: &Web, asked: &str) -> Response<Body> {
    let search = match Search::parse(asked) {
        Ok(search) => search,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, why),
    };
    match found(web, &search).await {
        Ok(lines) => as_lines(lines.iter().rev()),
        Err(why) => unsought(&why),
    }
}

/// `GET /api/v1/logs/starts?q=SERVER`: a line of JSON for each, the last first.
pub async fn log_starts(web: &Web, asked: &str) -> Response<Body> {
    let named = form_urlencoded::parse(asked.as_bytes()).find(|(key, _)| key == "q");
    let named = named.map(|(_, value)| value).unwrap_or_default();
    match starts_of(web, &named).await {
        Ok(Some((_, starts))) => as_lines(starts.iter()),
        Ok(None) => refusal(
            StatusCode::NOT_FOUND,
            "no server is called so; its name or MAC address is wanted",
        ),
        Err(why) => unsought(&why),
    }
}

/// `GET /logs?q=WORDS&step=STEP&start=ID&hours=N`
pub async fn logs_page(web: &Web, asked: &str) -> Response<Body> {
    let content = match Search::parse(asked) {
        Ok(search) => {
            let (lines, starts) = tokio::join!(found(web, &search), starts_of(web, &search.words));
            let told = lines.and_then(|lines| Ok((lines, starts?)));
            html! {
                (form(&search))
                @match told {
                    Ok((lines, starts)) => {
                        @if let Some((name, starts)) = &starts { (starts_table(name, starts, &search)) }
                        (table(&lines))
                    }
                    Err(why) => div.problem.bad role="alert" { b { "The logs cannot be sought: " (why) } p { "They are the last that the box starts." } }
                }
            }
        }
        Err(why) => html! { div.problem.bad role="alert" { b { (why) } } },
    };
    let content = html! {
        p { a href="/" { "Back to the site" } " " a href={ (PATH) "logs/select/vmui/" } { "More ways to seek" } " " a href={ (PATH) "metrics/vmui/" } { "Metrics" } " " a href=(DASHBOARDS) { "Dashboards" } }
        (content)
    };
    page_of(page::of_form("Logs", &content).into_string().into())
}

fn form(search: &Search) -> Markup {
    html! {
        form.filter role="search" method="get" action=(LOGS_PAGE) {
            label { "Seek " input type="search" name="q" value=(search.words) placeholder="a server, a unit, words…"; }
            label { "Of " select name="step" {
                option value="" selected[search.step.is_none()] { "everything" }
                @for (step, means) in STEPS { option value=(step) selected[search.step == Some(step)] title=(means) { (step) } }
            } }
            label { "Of the last " select name="hours" {
                @for hours in query::HOURS { option value=(hours) selected[hours == search.hours] { (hours) @if hours == 1 { " hour" } @else { " hours" } } }
            } }
            @if let Some(start) = &search.start { label { "Of the start " input name="start" value=(start) size="34"; } }
            button { "Show" }
        }
    }
}

/// What a server has started, each with the way to its lines.
fn starts_table(name: &str, starts: &[Start], search: &Search) -> Markup {
    if starts.is_empty() {
        return html! { p.dim { "No line of " (name) "'s own has come; what the box has heard of it is below." } };
    }
    let address = |start: &Start| {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("q", name).append_pair("hours", "720");
        format!(
            "{LOGS_PAGE}?{}",
            form.append_pair("start", &start.id).finish()
        )
    };
    html! {
        details open[search.start.is_some()] {
            summary { "Starts of " (name) " (" (starts.len()) ")" }
            (page::wide("Starts", &html! {
                table {
                    thead { tr { @for title in ["First line", "Last line", "What", "Lines"] { th scope="col" { (title) } } } }
                    tbody { @for start in starts {
                        tr {
                            td.time { a href=(address(start)) { (start.first) } }
                            td.time { (start.last) }
                            td { (start.system) }
                            td { (start.lines) }
                        }
                    } }
                }
            }))
        }
    }
}

fn table(lines: &[Line]) -> Markup {
    html! {
        p.dim role="status" { (lines.len()) @if lines.len() == 1 { " line" } @else { " lines" } @if lines.len() == query::SHOWN { " at most; seek for fewer" } ", newest first" }
        (page::wide("Lines", &html! {
            table {
                thead { tr { @for title in ["When", "Where", "What"] { th scope="col" { (title) } } } }
                tbody { @for line in lines {
                    tr { td.time { (line.time) } td { (line.host) br; span.dim { (line.unit) } } td.(line.tone()) { (line.message) } }
                } }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_reads_is_passed_on_and_nothing_else() {
        let engines = Engines::default();
        for (path, port) in [
            ("/monitoring/metrics/vmui/index.html", Some(8428)),
            (
                "/monitoring/metrics/prometheus/api/v1/query_range",
                Some(8428),
            ),
            ("/monitoring/metrics/api/v1/label/job/values", Some(8428)),
            ("/monitoring/metrics/federate", Some(8428)),
            ("/monitoring/logs/select/logsql/query", Some(9428)),
            ("/monitoring/logs/select/vmui/", Some(9428)),
            ("/monitoring/metrics/api/v1/admin/tsdb/delete_series", None),
            ("/monitoring/metrics/api/v1/write", None),
            ("/monitoring/metrics/api/v1/import", None),
            (
                "/monitoring/metrics/api/v1/label/x/values/../../admin",
                None,
            ),
            ("/monitoring/metrics/snapshot/create", None),
            ("/monitoring/metrics/-/reload", None),
            ("/monitoring/metrics/internal/force_merge", None),
            ("/monitoring/logs/insert/jsonline", None),
            ("/monitoring/logs/delete/run_task", None),
            ("/monitoring/logs/internal/force_flush", None),
            ("/monitoring/", None),
        ] {
            assert_eq!(engines.of(path).map(|engine| engine.port()), port, "{path}");
        }
    }
}

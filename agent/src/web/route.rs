//! A request to an answer.

use std::{net::IpAddr, path::PathBuf, sync::PoisonError, time::Instant};

use firstlight_api::{edge, report::RELAY_HEADER};
use firstlight_netboot::{
    MacAddr,
    boot_files::{self, INITRD, KERNEL},
};
use firstlight_requests::{is_plain, is_plain_version, normalize, unescape};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::{Request, Response, body::Incoming};

use super::{
    Body, Web, artifacts, certificate, changes,
    direct::Direct,
    events, files, html, media, monitoring, openapi,
    page::{Asset, Page, Reader},
    people::{self, gate, kubernetes},
    ramdisk, receipt, refusal, text, update,
};
use crate::{boot_files::BootFile, people::Who, status::metrics};

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

pub async fn answer(web: &Web, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
    let path = normalize(request.uri().path());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let who = match gate::admit(web, peer, request.method(), &path, request.headers()) {
        Ok(who) => who,
        Err(refused) => return *refused,
    };
    if let Some(below) = path.strip_prefix(artifacts::PATH) {
        let below = below.to_owned();
        return artifacts::answer(web, &who, peer, &below, request).await;
    }
    let asked = request.uri().path_and_query();
    let asked = asked.and_then(|asked| asked.as_str().strip_prefix(gate::KUBERNETES));
    if let Some(below) =
        asked.filter(|below| below.starts_with('/') && path.starts_with(gate::KUBERNETES))
    {
        let below = below.to_owned();
        return kubernetes::answer(web, &who, peer, &below, request).await;
    }
    if path == certificate::PATH {
        return certificate::answer(web, &who, peer, request).await;
    }
    if let Some(below) = path.strip_prefix(update::PATH) {
        return update::answer(web, &who, peer, below, request).await;
    }
    if path.starts_with(monitoring::PATH) {
        return monitoring::answer(web, &path, request).await;
    }
    if people::is_theirs(&path) {
        return people::answer(web, &who, peer, &path, request).await;
    }
    match (request.method().clone(), path.as_str()) {
        (Method::GET, monitoring::LOGS) => monitoring::logs(web, &query).await,
        (Method::GET, monitoring::STARTS) => monitoring::log_starts(web, &query).await,
        (Method::GET, monitoring::LOGS_PAGE) => monitoring::logs_page(web, &query).await,
        (Method::GET, receipt::PATH) => receipt::answer(web, &who, peer).await,
        (Method::POST, "/api/v1/ramdisk/report") => ramdisk::report(web, peer, request).await,
        (Method::POST, "/api/v1/ramdisk/progress") => ramdisk::progress(web, peer, request).await,
        (method @ (Method::GET | Method::HEAD), path) => {
            let only_head = method == Method::HEAD;
            get(web, &who, peer, path, &query, request.headers(), only_head).await
        }
        _ => {
            let mut response = refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "this address can only be read",
            );
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
    }
}

async fn get(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    only_head: bool,
) -> Response<Body> {
    if let Some(page) = Page::of(path, query) {
        return shown(web, who, page).await;
    }
    match path {
        "/api/v1/status" => text(
            StatusCode::OK,
            JSON,
            events::json(&web.told.events.text(&web.status)),
        ),
        "/api/v1/events" if !only_head => events::answer(web, who, peer, events::All),
        changes::PATH if !only_head => match changes::of(web, who, query) {
            Some(changes) => events::answer(web, who, peer, changes),
            None => refusal(
                StatusCode::BAD_REQUEST,
                "say of which page: /changes?of=/hosts",
            ),
        },
        edge::PATH => edge(web).await,
        openapi::PATH => text(StatusCode::OK, JSON, openapi::DOCUMENT),
        "/readyz" => ready(web),
        "/metrics" => text(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            web.told.metrics.text(&web.status),
        ),
        "/boot/kernel" => boot(web.boot_files.find(KERNEL), headers, only_head).await,
        "/boot/initrd" => boot(web.boot_files.find(INITRD), headers, only_head).await,
        "/boot/ca.pem" => files::serve(&web.paths.site_ca(), headers, only_head).await,
        "/boot/ipxe" => match wanted_mac(query) {
            Some(mac) => boot(Some(web.boot_files.ipxe(mac)), headers, only_head).await,
            None => refusal(
                StatusCode::BAD_REQUEST,
                "say for which NIC: /boot/ipxe?mac=52:54:00:12:34:56",
            ),
        },
        _ => {
            if let Some(asset) = Asset::find(path) {
                return of_page(asset);
            }
            if let Some(mac) = boot_files::of_medium(path) {
                return media::answer(web, mac, headers, only_head).await;
            }
            if let Some(name) = path.strip_prefix("/images/").filter(|name| is_plain(name)) {
                if !only_head && let Some(relay) = relay(web, peer, name, headers) {
                    return relay;
                }
                return files::serve(&image(web, name), headers, only_head).await;
            }
            let suites = [
                ("/apt/base/", web.paths.apt_base()),
                ("/apt/uploads/", web.paths.apt()),
            ];
            for (prefix, folder) in suites {
                if let Some(below) = path.strip_prefix(prefix).map(unescape)
                    && below.split('/').all(is_plain_version)
                {
                    return files::serve(&folder.join(&*below), headers, only_head).await;
                }
            }
            let name = path.trim_start_matches('/');
            web.boot_files.loaders.asked(peer, name, Instant::now());
            boot(web.boot_files.find(name), headers, only_head).await
        }
    }
}

async fn shown(web: &Web, who: &Who, page: Page) -> Response<Body> {
    let is_there = match &page {
        Page::Host(name) => web.status.borrow().hosts.iter().any(|it| it.name == *name),
        _ => true,
    };
    let reader = Reader::of(who.role());
    let mut response = html(web.told.pages.text(page, reader, &web.status).await);
    if !is_there {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

/// Its address changes with its content.
fn of_page(asset: &Asset) -> Response<Body> {
    let mut response = text(StatusCode::OK, asset.content_type, asset.content);
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, for_ever);
    response
}

/// Machines of the clusters, for programs.
async fn edge(web: &Web) -> Response<Body> {
    let clusters = web.status.borrow().clusters.clone();
    let Some(client) = web.facts.kubernetes.borrow().clone() else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the box's Kubernetes is not up yet",
        );
    };
    let report = web.edge.of(&client, &clusters).await;
    let content = serde_json::to_vec(&report).expect("plain JSON");
    text(StatusCode::OK, JSON, content)
}

/// What is large: kernel and initramfs, images.
pub async fn file(web: &Web, peer: IpAddr, path: &str, headers: &HeaderMap) -> Option<Direct> {
    let path = normalize(path);
    let loads = |name| {
        web.boot_files.loaders.asked(peer, name, Instant::now());
        web.boot_files.find(name)
    };
    let found = match path.as_str() {
        "/boot/kernel" => loads(KERNEL),
        "/boot/initrd" => loads(INITRD),
        path => {
            let name = path
                .strip_prefix("/images/")
                .filter(|name| is_plain(name))?;
            if let Some(relay) = relay(web, peer, name, headers) {
                let (head, _) = relay.into_parts();
                let mut head = Response::from_parts(head, ());
                let none = HeaderValue::from_static("0");
                head.headers_mut().insert(header::CONTENT_LENGTH, none);
                return Some(Direct {
                    head,
                    part: None,
                    share: None,
                });
            }
            return files::direct(&image(web, name), headers, web.bandwidth.share(peer)).await;
        }
    };
    match found {
        Some(BootFile::Stick(path)) => {
            files::direct(&path, headers, web.bandwidth.share(peer)).await
        }
        _ => None,
    }
}

/// On the stick, or else uploaded.
fn image(web: &Web, name: &str) -> PathBuf {
    let on_stick = web.paths.images().join(name);
    if on_stick.exists() {
        on_stick
    } else {
        web.paths.uploaded_images().join(name)
    }
}

/// A ramdisk that passes images on may be sent to another one.
fn relay(web: &Web, peer: IpAddr, name: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let port = relay_port(headers)?;
    let giver = web
        .relays
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .choose(Instant::now(), name, (peer, port).into())?;
    let mut response = refusal(StatusCode::TEMPORARY_REDIRECT, "another server has it");
    let location = HeaderValue::from_str(&format!("http://{giver}/images/{name}")).ok()?;
    response.headers_mut().insert(header::LOCATION, location);
    Some(response)
}

fn relay_port(headers: &HeaderMap) -> Option<u16> {
    let port = headers.get(RELAY_HEADER)?.to_str().ok()?.parse().ok()?;
    (port > 0).then_some(port)
}

fn ready(web: &Web) -> Response<Body> {
    let status = web.status.borrow();
    if status.ready {
        return text(StatusCode::OK, PLAIN, "ready\n");
    }
    text(
        StatusCode::SERVICE_UNAVAILABLE,
        PLAIN,
        crate::status::banner::render(&status),
    )
}

fn wanted_mac(query: &str) -> Option<MacAddr> {
    let mac = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("mac="))?;
    unescape(mac).parse().ok()
}

async fn boot(found: Option<BootFile>, headers: &HeaderMap, only_head: bool) -> Response<Body> {
    match found {
        Some(BootFile::Stick(path)) => files::serve(&path, headers, only_head).await,
        Some(BootFile::Script(content)) => text(StatusCode::OK, PLAIN, content),
        Some(BootFile::NotYet) => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the box is still starting; try again in a few seconds",
        ),
        None => refusal(StatusCode::NOT_FOUND, "nothing is here; the page is at /"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_nic_is_read_from_any_query_or_not_at_all(query in "(mac=|&|=|%|:|[0-9a-fA-F]{2}){0,14}", mac: [u8; 6]) {
            let _ = wanted_mac(&query);
            if let Some(mac) = MacAddr::new(mac) {
                let escaped = mac.to_string().replace(':', "%3A");
                proptest::prop_assert_eq!(wanted_mac(&format!("a=b&mac={escaped}&c")), Some(mac));
            }
        }

        #[test]
        fn no_header_of_a_relay_breaks_it(value: Vec<u8>, port: u16) {
            let ask = |value: &[u8]| {
                let value = HeaderValue::from_bytes(value).ok()?;
                relay_port(&HeaderMap::from_iter([(RELAY_HEADER.parse::<header::HeaderName>().ok()?, value)]))
            };
            let _ = ask(&value);
            proptest::prop_assert_eq!(ask(port.to_string().as_bytes()), (port > 0).then_some(port));
        }
    }
}

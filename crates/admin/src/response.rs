// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes requests and creates their responses.

use super::{
    Source,
    format::Format,
    guard, metrics,
    query::Query,
    record::{Health, HealthStatus, Status},
    release::Release,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use longhaul_report::page;
use serde::Serialize;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Files of the status page, which are part of the program. Their data come from the JSON
/// interface, and are never interpreted as HTML.
const PAGE_FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("../web/admin.html")),
    ("/web/admin.css", CSS, include_str!("../web/admin.css")),
    ("/web/admin.js", JS, include_str!("../web/admin.js")),
    ("/web/chart.js", JS, page::CHART_SCRIPT),
    ("/web/longhaul.css", CSS, page::STYLE),
    ("/web/uPlot.js", JS, page::UPLOT_SCRIPT),
    ("/web/uPlot.css", CSS, page::UPLOT_STYLE),
];

/// Headers of every response. They forbid caching, framing, sniffing, loading from other origins, and reading
/// by other origins. There is no CORS header, on purpose.
const RESPONSE_HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Returns the response to a request; errors become responses too.
pub(super) async fn respond<B>(
    request: &Request<B>,
    source: &impl Source,
    release: &Release,
) -> Response<Full<Bytes>> {
    let mut response = match guard::check(request, || release.respond(request, source)) {
        Ok(None) => route(request, source).await,
        Ok(Some((status, reason))) | Err((status, reason)) => text(status, reason),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    for (name, value) in RESPONSE_HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Returns the response of an endpoint that other hosts can reach: the status alone, since anyone may ask. The Host field
/// is not checked, because a page of another origin learns nothing from it.
pub(super) fn respond_health<B>(
    request: &Request<B>,
    source: &impl Source,
    release: &Release,
) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match (is_read, request.uri().path()) {
        (true, "/healthz") => {
            let status = source.health().status;
            json(
                status_code(status),
                &serde_json::json!({ "status": status }),
            )
        }
        (true, "/readyz") => {
            let health = source.health();
            let (status, is_ready) = (health.status, health.is_ready());
            json(
                readiness_code(is_ready),
                &serde_json::json!({ "status": status, "ready": is_ready }),
            )
        }
        (true, _) => text(
            StatusCode::NOT_FOUND,
            "only /healthz and /readyz are served here",
        ),
        (false, _) => match release.respond(request, source) {
            Some((status, reason)) => text(status, reason),
            None => text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD are served here",
            ),
        },
    }
}

async fn route<B>(request: &Request<B>, source: &impl Source) -> Response<Full<Bytes>> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
    match path {
        "/healthz" => health(&source.health()),
        "/readyz" => readiness(&source.health()),
        "/metrics" => metrics_response(negotiate_format(request), &source.status().await),
        "/api/v1/status" => json(StatusCode::OK, &source.status().await),
        "/api/v1/throughput" => json(StatusCode::OK, &source.throughput()),
        "/api/v1/connections" => match Query::parse(query) {
            Ok(query) => json(StatusCode::OK, &query.select(&*source.connections().await)),
            Err(problem) => text(StatusCode::BAD_REQUEST, &problem),
        },
        _ => match page_file(path) {
            Some((content_type, bytes)) => content(content_type, bytes),
            None => text(
                StatusCode::NOT_FOUND,
                "there is no such page; / has the links",
            ),
        },
    }
}

/// Returns the content type and the content of a file of the page.
fn page_file(path: &str) -> Option<(&'static str, &'static str)> {
    let found = PAGE_FILES.iter().find(|(name, ..)| *name == path);
    found.map(|(_, content_type, content)| (*content_type, *content))
}

fn negotiate_format<B>(request: &Request<B>) -> Format {
    let fields = request.headers().get_all(header::ACCEPT).iter();
    Format::negotiate(fields.filter_map(|field| field.to_str().ok()))
}

fn metrics_response(format: Format, status: &Status) -> Response<Full<Bytes>> {
    let mut response = match metrics::encode(status, format) {
        Ok(text) => content(format.content_type(), text),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let accept = HeaderValue::from_static("Accept");
    response.headers_mut().insert(header::VARY, accept);
    response
}

fn health(health: &Health) -> Response<Full<Bytes>> {
    json(status_code(health.status), health)
}

fn status_code(status: HealthStatus) -> StatusCode {
    match status {
        HealthStatus::Serving => StatusCode::OK,
        HealthStatus::Draining
        | HealthStatus::Stalled
        | HealthStatus::NoUpstream
        | HealthStatus::NotIntercepting => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Returns the health with a code that tells load balancers where new connections would wait.
fn readiness(health: &Health) -> Response<Full<Bytes>> {
    json(readiness_code(health.is_ready()), health)
}

fn readiness_code(is_ready: bool) -> StatusCode {
    if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let mut text = serde_json::to_string(value).expect("a record is plain data");
    text.push('\n');
    response(status, JSON, text)
}

fn text(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    response(status, TEXT, format!("{line}\n"))
}

fn content(content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(StatusCode::OK, content_type, body)
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

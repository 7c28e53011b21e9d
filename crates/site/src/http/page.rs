// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages for browsers: the contents of a directory, and the exports.

use super::{
    dav_request::DavRequest,
    export::meta::Meta,
    listing::Listing,
    request::target::escape_path,
    response::{
        HttpResponse, Outcome, Rejection, empty_response, full_body, insert, streamed_body,
        typed_response,
    },
};
use hyper::header;
use longhaul_store::path::RelPath;
use longhaul_units::Bytes;
use percent_encoding::percent_decode_str;
use std::iter;
use xml::escape::escape_str_attribute;

const HTML_TYPE: &str = "text/html; charset=utf-8";

/// Most entries on a page.
const ENTRIES_MAX: usize = 100_000;

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>longhaul site</title>\n\
    <style>table { border-spacing: 1.5em 0.25em } th { text-align: left } .size { text-align: right }</style></head>\n\
    <body>";

const PARENT: &str = "<table>\n<tr><th>Name</th><th>Last modified</th><th class=\"size\">Size</th></tr>\n\
    <tr><td><a href=\"..\">Parent directory</a></td></tr>\n";

/// Responds to a GET or a HEAD of a directory; hyper drops the body of a HEAD unread. A URL without a slash at its end is
/// redirected: links on the page would lead elsewhere.
pub(super) async fn get(request: DavRequest) -> Outcome {
    let url = request.url().trim_end_matches('/').to_owned() + "/";
    if !request.target.is_directory {
        let mut response = empty_response(302);
        insert(&mut response, header::LOCATION, url);
        return Ok(response);
    }
    let listing = Listing::read(&request.files, request.path()).await?;
    if listing.count > ENTRIES_MAX {
        return Err(Rejection(
            507,
            "a page has no more than 100,000 entries: PROPFIND lists more",
        ));
    }
    let body = streamed_body(texts(&url, listing));
    Ok(typed_response(200, HTML_TYPE, body))
}

/// Returns the parts of a page. Directories come first.
fn texts(url: &str, listing: Listing) -> impl Iterator<Item = Outcome<String>> + Send + 'static {
    let is_shown = |entry: &Outcome<(RelPath, Meta)>, directories| match entry {
        Ok((path, meta)) => meta.is_dir() == directories && !path.name().starts_with(b"."),
        Err(_) => true,
    };
    let directories = listing
        .entries
        .clone()
        .filter(move |entry| is_shown(entry, true));
    let files = listing
        .into_entries()
        .filter(move |entry| is_shown(entry, false));
    let rows = directories
        .chain(files)
        .map(|entry| entry.map(|(path, meta)| row(&path, &meta)));
    let title = percent_decode_str(url).decode_utf8_lossy();
    let begin = format!("{HEAD}<h1>{}</h1>\n{PARENT}", escape_str_attribute(&title));
    let end = "</table></body></html>\n".to_owned();
    iter::once(Ok(begin)).chain(rows).chain([Ok(end)])
}

fn row(path: &RelPath, meta: &Meta) -> String {
    let slash = if meta.is_dir() { "/" } else { "" };
    let link = escape_path(path.name());
    let name = String::from_utf8_lossy(path.name());
    let modified = meta
        .modified()
        .map(|time| time.strftime("%Y-%m-%d %H:%M").to_string());
    let size = if meta.is_dir() {
        String::new()
    } else {
        Bytes::new(meta.len()).to_string()
    };
    format!(
        "<tr><td><a href=\"./{link}{slash}\">{}{slash}</a></td><td>{}</td><td class=\"size\">{size}</td></tr>\n",
        escape_str_attribute(&name),
        modified.unwrap_or_default(),
    )
}

/// Returns a page with links to the exports. Their names contain no HTML characters.
pub(super) fn exports(names: &[&str]) -> HttpResponse {
    let links = names
        .iter()
        .map(|name| format!("<li><a href=\"/{name}/\">{name}/</a></li>\n"));
    let links: String = links.collect();
    let html = format!("{HEAD}<h1>Exports</h1>\n<ul>\n{links}</ul>\n</body></html>\n");
    typed_response(200, HTML_TYPE, full_body(html))
}

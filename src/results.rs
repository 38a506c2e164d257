//! Images and speech that were made: kept in the data folder, and handed out under an address of our
//! own that ends after a day.
//!
//! In the ledger a result stands as `result:NAME`; the address is made anew each time it is shown.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use forebay_engine::Clock;
use serde::Deserialize;
use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tower::ServiceExt;
use tower_http::services::ServeFile;

use crate::auth::KeyRing;
use crate::auth::secrets::Place;

/// How long an address leads to its result.
const ADDRESS_LIFE: Duration = Duration::from_secs(24 * 3_600);
/// What a result's name begins with where it stands in the ledger.
const MARK: &str = "result:";

/// The results of this installation; clones share the folder.
#[derive(Clone)]
pub struct Results {
    folder: Arc<PathBuf>,
    keys: KeyRing,
    public_url: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Results").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A result that is being written. Dropped before [`Draft::keep`], it leaves nothing behind that is
/// ever shown.
#[derive(Debug)]
pub struct Draft {
    file: File,
    part: PathBuf,
    whole: PathBuf,
    name: String,
    bytes: u64,
}

/// A result that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// As it stands in the ledger: `result:NAME`.
    pub mark: String,
    /// Its size.
    pub bytes: u64,
}

impl Results {
    /// In `folder`, which is made when the first result comes. `public_url` begins every address.
    pub fn new(folder: PathBuf, keys: KeyRing, public_url: &str, clock: Arc<dyn Clock>) -> Self {
        Self { folder: Arc::new(folder), keys, public_url: public_url.trim_end_matches('/').into(), clock }
    }

    /// Begins to write a result of that content type.
    ///
    /// # Errors
    /// When the folder can't be written to.
    pub async fn begin(&self, content_type: &str) -> io::Result<Draft> {
        let name = format!("{}.{}", uuid::Uuid::now_v7().simple(), extension(content_type));
        tokio::fs::create_dir_all(&*self.folder).await?;
        let whole = self.folder.join(&name);
        let part = self.folder.join(format!("{name}.part"));
        Ok(Draft { file: File::create(&part).await?, part, whole, name, bytes: 0 })
    }

    /// Writes a result that is here as a whole.
    ///
    /// # Errors
    /// When the folder can't be written to.
    pub async fn put(&self, content_type: &str, bytes: &[u8]) -> io::Result<Kept> {
        let mut draft = self.begin(content_type).await?;
        draft.write(bytes).await?;
        draft.keep().await
    }

    /// The addresses of an answer's results, in place of their marks: of `data[].url` and `audio.url`.
    pub fn show(&self, output: &mut Value) {
        let data = output.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten();
        data.for_each(|item| self.show_one(item));
        if let Some(audio) = output.get_mut("audio") {
            self.show_one(audio);
        }
    }

    /// What was kept of a `b64_json` is shown by its address too.
    fn show_one(&self, item: &mut Value) {
        let inside = item.get("b64_json").and_then(Value::as_str).is_some_and(|mark| mark.starts_with(MARK));
        if inside
            && let Some(item) = item.as_object_mut()
            && let Some(mark) = item.shift_remove("b64_json")
        {
            item.insert("url".into(), mark);
        }
        if let Some(url) = item.get_mut("url")
            && let Some(name) = url.as_str().and_then(|url| url.strip_prefix(MARK))
        {
            *url = self.address(name).into();
        }
    }

    /// A signed address of a result, good for a day.
    fn address(&self, name: &str) -> String {
        let expires = (self.clock.now() + ADDRESS_LIFE).as_millis() / 1_000;
        let (seal, version) = self.keys.seal(place(name, &expires.to_string()), "");
        let seal = STANDARD.decode(seal).map(|seal| URL_SAFE_NO_PAD.encode(seal)).unwrap_or_default();
        format!("{}/results/{name}?expires={expires}&signature={version}.{seal}", self.public_url)
    }

    fn is_signed(&self, name: &str, expires: u64, signature: &str) -> bool {
        let opened = || {
            let (version, seal) = signature.split_once('.')?;
            let seal = STANDARD.encode(URL_SAFE_NO_PAD.decode(seal).ok()?);
            self.keys.open(place(name, &expires.to_string()), &seal, version.parse().ok()?).ok()
        };
        opened().is_some()
    }

    /// The file of a result that stands in the ledger as `mark`.
    pub fn file(&self, mark: &str) -> Option<PathBuf> {
        let name = mark.strip_prefix(MARK).filter(|name| is_name(name))?;
        Some(self.folder.join(name))
    }

    /// GET /results/{name}.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/results/{name}", get(serve))
            .method_not_allowed_fallback(async || {
                (StatusCode::METHOD_NOT_ALLOWED, "a result can only be read\n")
            })
            .with_state(self.clone())
    }

    /// Removes what is older than `age`; returns how many.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub async fn sweep(&self, age: Duration) -> io::Result<u64> {
        let mut entries = match tokio::fs::read_dir(&*self.folder).await {
            Ok(entries) => entries,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut removed = 0;
        while let Some(entry) = entries.next_entry().await? {
            let made = entry.metadata().await?.modified()?;
            if made.elapsed().is_ok_and(|past| past > age) {
                tokio::fs::remove_file(entry.path()).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Draft {
    /// Writes a piece.
    ///
    /// # Errors
    /// When the disk takes no more.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).await
    }

    /// Keeps what was written.
    ///
    /// # Errors
    /// When the disk takes no more.
    pub async fn keep(mut self) -> io::Result<Kept> {
        self.file.flush().await?;
        self.file.sync_data().await?;
        tokio::fs::rename(&self.part, &self.whole).await?;
        Ok(Kept { mark: format!("{MARK}{}", self.name), bytes: self.bytes })
    }
}

fn place<'a>(name: &'a str, expires: &'a str) -> Place<'a> {
    Place { table: "results", row: name, column: expires }
}

/// A name that we made: 32 hexadecimal digits, a dot, an extension.
fn is_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(id, extension)| {
        id.len() == 32
            && id.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !extension.is_empty()
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// What a file of that type is called, so that it is served as that type again.
fn extension(content_type: &str) -> &'static str {
    match content_type.split(';').next().unwrap_or_default().trim() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/webp" => "webp",
        "image/gif" => "gif",
        "image/avif" => "avif",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/ogg" | "audio/opus" => "ogg",
        "audio/aac" => "aac",
        "audio/flac" => "flac",
        "video/mp4" => "mp4",
        _ => "bin",
    }
}

#[derive(Deserialize)]
struct Signed {
    #[serde(default)]
    expires: String,
    #[serde(default)]
    signature: String,
}

async fn serve(
    State(results): State<Results>,
    Path(name): Path<String>,
    Query(signed): Query<Signed>,
    request: Request,
) -> Response<Body> {
    let refuse = |status: StatusCode, message: &'static str| (status, message).into_response();
    let expires = signed.expires.parse().unwrap_or_default();
    if !is_name(&name) || !results.is_signed(&name, expires, &signed.signature) {
        return refuse(StatusCode::FORBIDDEN, "this address is not signed by this server\n");
    }
    if results.clock.now().as_millis() / 1_000 >= expires {
        return refuse(StatusCode::GONE, "this address has ended; ask for the task again to get a new one\n");
    }
    let served = ServeFile::new(results.folder.join(&name)).oneshot(request).await;
    let mut response = match served {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    };
    if response.status() == StatusCode::NOT_FOUND {
        return refuse(StatusCode::NOT_FOUND, "this result is not kept any more\n");
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    response
}

#[cfg(test)]
mod tests {
    use forebay_engine::clock::{Moment, TokioClock};
    use serde_json::json;

    use super::*;

    fn results(folder: &std::path::Path) -> Results {
        let clock = Arc::new(TokioClock::starting_at(Moment::from_millis(1_000_000)));
        Results::new(folder.to_owned(), KeyRing::random(), "https://forebay.example/", clock)
    }

    #[tokio::test]
    async fn a_result_is_shown_by_an_address_that_only_we_can_sign() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let results = results(folder.path());
        let kept = results.put("image/png", b"PNG").await.expect("it is written");
        assert_eq!(kept.bytes, 3);
        let mut output = json!({"data": [{"url": kept.mark}, {"url": "https://elsewhere.example/a"}]});
        results.show(&mut output);
        let url: http::Uri = output["data"][0]["url"].as_str().expect("a URL").parse().expect("a URL");
        assert!(url.path().starts_with("/results/") && url.path().ends_with(".png"));
        assert_eq!(output["data"][1]["url"], "https://elsewhere.example/a");

        let ask = async |uri: String| {
            let request = Request::builder().uri(uri).body(Body::empty()).expect("a request");
            results.routes().oneshot(request).await.expect("an answer")
        };
        let path = url.path_and_query().expect("a path").to_string();
        let served = ask(path.clone()).await;
        assert_eq!(
            (served.status(), &served.headers()["content-type"]),
            (StatusCode::OK, &HeaderValue::from_static("image/png"))
        );
        for forged in
            [path.replace("expires=", "expires=9"), path.replace(".png", ".jpg"), url.path().to_owned()]
        {
            assert_eq!(ask(forged).await.status(), StatusCode::FORBIDDEN);
        }
    }

    #[tokio::test]
    async fn a_draft_that_is_dropped_is_no_result() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let results = results(folder.path());
        let mut draft = results.begin("audio/mpeg").await.expect("a draft");
        draft.write(b"half").await.expect("it is written");
        let name = draft.name.clone();
        drop(draft);
        assert!(!results.file(&format!("{MARK}{name}")).expect("a name").exists());
        assert_eq!(results.file("result:../../etc/passwd"), None);
    }
}

//! Calling server functions from the browser. One plain `fetch` serves all of them: what leptos
//! generates for each function and each form would be most of the bundle.

use std::future::Future;
use std::pin::Pin;

use leptos::server_fn::ServerFn;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::port::PortError;

/// An answer on its way.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, PortError>> + Send>>;

/// Calls a server function: in the server directly, in the browser over HTTP.
pub(crate) fn ask<S>(arguments: S) -> Answer<S::Output>
where
    S: ServerFn<Error = PortError> + Serialize + Send + 'static,
    S::Output: Serialize + DeserializeOwned + Send,
{
    let json = ask_json(arguments);
    Box::pin(async move { read(&json.await?) })
}

/// The same, with the answer left as JSON.
pub(crate) fn ask_json<S>(arguments: S) -> Answer<String>
where
    S: ServerFn<Error = PortError> + Serialize + Send + 'static,
    S::Output: Serialize + Send,
{
    #[cfg(feature = "ssr")]
    return Box::pin(async move {
        let answer = arguments.run_body().await?;
        serde_json::to_string(&answer).map_err(|error| PortError::unavailable(error.to_string()))
    });
    #[cfg(not(feature = "ssr"))]
    match serde_qs::to_string(&arguments) {
        Ok(fields) => post(S::PATH, fields),
        Err(error) => Box::pin(std::future::ready(Err(PortError::invalid("form", error.to_string())))),
    }
}

/// Reads an answer.
pub(crate) fn read<T: DeserializeOwned>(json: &str) -> Result<T, PortError> {
    serde_json::from_str(json).map_err(|error| PortError::unavailable(error.to_string()))
}

/// Sends fields as a form would and gives the JSON of the answer back. In the browser only.
pub(crate) fn post(url: &'static str, fields: String) -> Answer<String> {
    Box::pin(send_wrapper::SendWrapper::new(async move {
        let offline = |_| PortError::Offline;
        let answer = gloo_net::http::Request::post(url)
            .header("accept", "application/json")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(fields)
            .map_err(offline)?
            .send()
            .await
            .map_err(offline)?;
        let text = answer.text().await.map_err(offline)?;
        if answer.ok() {
            return Ok(text);
        }
        // What is no error of ours comes from something between us and the server.
        Err(read(&text).unwrap_or_else(|_| PortError::unavailable(format!("HTTP {}", answer.status()))))
    }))
}

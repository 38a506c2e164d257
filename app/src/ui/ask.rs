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
    S::Output: DeserializeOwned,
{
    #[cfg(feature = "ssr")]
    return Box::pin(arguments.run_body());
    #[cfg(not(feature = "ssr"))]
    {
        let fields = serde_qs::to_string(&arguments);
        Box::pin(async move {
            let fields = fields.map_err(|error| PortError::invalid("form", error.to_string()))?;
            let answer = post(S::PATH, fields).await?;
            serde_json::from_slice(answer.as_bytes())
                .map_err(|error| PortError::unavailable(error.to_string()))
        })
    }
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
        Err(serde_json::from_slice(text.as_bytes())
            .unwrap_or_else(|_| PortError::unavailable(format!("HTTP {}", answer.status()))))
    }))
}

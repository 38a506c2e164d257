//! What surrounds every page: the HTML document, and what the server knows before it renders.

use serde::{Deserialize, Serialize};

use crate::session::api::{Operator, Role};
use crate::ui::text::Language;

/// What the server knows about a request before it renders. Sent along with the page, so that the
/// browser renders the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Chosen by the operator's cookie, else by the browser.
    pub language: Language,
    /// Who is signed in; none on the login page.
    pub operator: Option<Operator>,
    /// FOREBAY_TIME_ZONE: the zone of every time shown.
    pub zone: String,
    /// FOREBAY_PUBLIC_URL, when the browser is somewhere else; see `SessionPort::wrong_address`.
    pub wrong_address: Option<String>,
}

impl Frame {
    /// Whether the operator may change things. Only decides what is offered: the server functions
    /// decide what is done.
    pub(crate) fn may_write(&self) -> bool {
        self.operator.as_ref().is_some_and(|operator| operator.role >= Role::Admin)
    }
}

#[cfg(feature = "ssr")]
pub use document::{Assets, document};

#[cfg(feature = "ssr")]
mod document {
    use leptos::nonce::use_nonce;
    use leptos::prelude::*;
    use leptos_meta::MetaTags;

    use super::Frame;
    use crate::app::App;

    /// URLs of the built bundle.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Assets {
        /// The styles.
        pub css: String,
        /// The JavaScript that loads the bundle.
        pub js: String,
        /// The bundle.
        pub wasm: String,
    }

    /// The HTML document around the app.
    pub fn document(assets: &Assets) -> AnyView {
        let frame = use_context::<Frame>().unwrap_or_default();
        let nonce = use_nonce();
        let hydrate = format!(
            "import({:?}).then(m => m.default({{module_or_path: {:?}}}).then(() => m.hydrate()))",
            assets.js, assets.wasm
        );
        let Assets { css, js, wasm } = assets.clone();
        view! {
            <!DOCTYPE html>
            <html lang=frame.language.tag()>
                <head>
                    <meta charset="utf-8"/>
                    <meta name="viewport" content="width=device-width, initial-scale=1"/>
                    <meta name="color-scheme" content="light dark"/>
                    <link rel="icon" href="/favicon.ico" sizes="32x32"/>
                    <link rel="icon" href="/favicon.svg" type="image/svg+xml"/>
                    <link rel="stylesheet" href=css/>
                    <link rel="modulepreload" href=js/>
                    <link rel="preload" href=wasm r#as="fetch" r#type="application/wasm" crossorigin="anonymous"/>
                    <script type="module" nonce=nonce>
                        {hydrate}
                    </script>
                    <MetaTags/>
                </head>
                <body>
                    <App/>
                </body>
            </html>
        }
        .into_any()
    }
}

//! Forms that a server function carries out. They are plain forms: without JavaScript the browser
//! sends them and the server leads back to the page; once hydrated they are sent in the background.

use leptos::ev::SubmitEvent;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos::task::spawn_local;

use super::ask::{post, read};
use super::toast::Toasts;
use crate::port::PortError;

/// Something that forms of a page can do, and what came of it.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    url: &'static str,
    /// What the form under way is about (its `of`).
    pending: RwSignal<Option<String>>,
    /// JSON of the last answer, or why there was none.
    outcome: RwSignal<Option<Result<String, PortError>>>,
}

impl Act {
    /// Carried out by the server function `S`.
    pub(crate) fn of<S: ServerFn<Error = PortError>>() -> Self {
        Self::at(S::PATH)
    }

    fn at(url: &'static str) -> Self {
        let failed: Option<PortError> = SharedValue::new(|| error_in_url(url)).into_inner();
        Self { url, pending: RwSignal::new(None), outcome: RwSignal::new(failed.map(Err)) }
    }

    /// After each success: says what was done (told what the server function gave back), then
    /// calls `then`.
    pub(crate) fn on_success(self, say: Box<dyn Fn(&str) -> String>, then: Box<dyn Fn()>) {
        let toasts = expect_context::<Toasts>();
        Effect::new(move || {
            if let Some(Ok(json)) = self.outcome.get() {
                let name: Result<String, PortError> = read(&json);
                toasts.say(say(&name.unwrap_or(json)));
                then();
            }
        });
    }

    /// JSON of the last answer, if the last try succeeded.
    pub(crate) fn answer(self) -> Option<String> {
        self.outcome.with(|outcome| outcome.as_ref()?.as_ref().ok().cloned())
    }

    /// Why the last try failed, if it did.
    pub(crate) fn problem(self) -> Option<PortError> {
        self.outcome.with(|outcome| outcome.as_ref()?.as_ref().err().cloned())
    }

    /// Whether a form is under way.
    pub(crate) fn is_pending(self) -> bool {
        self.pending.with(Option::is_some)
    }

    /// Whether a form about `of` is under way.
    pub(crate) fn is_pending_for(self, of: &str) -> bool {
        self.pending.with(|pending| pending.as_deref() == Some(of))
    }

    fn send(self, event: &SubmitEvent, of: String) {
        let Some(fields) = fields_of(event) else { return };
        event.prevent_default();
        self.pending.set(Some(of));
        spawn_local(async move {
            let outcome = post(self.url, fields).await;
            // The page may be gone.
            self.pending.try_set(None);
            self.outcome.try_set(Some(outcome));
        });
    }
}

/// Where the browser sent the form itself, the error has come back in the URL. The server reads it
/// and tells the browser with the page.
fn error_in_url(url: &str) -> Option<PortError> {
    #[cfg(feature = "ssr")]
    return use_context::<leptos::server::ServerActionError>()
        .filter(|error| error.path() == url)
        .map(|error| leptos::server_fn::error::ServerFnUrlError::<PortError>::decode_err(error.err()));
    #[cfg(not(feature = "ssr"))]
    {
        let _ = url;
        None
    }
}

/// A form that does `act`.
#[component]
pub(crate) fn PostForm(
    /// What it does.
    act: Act,
    /// What it is about, where a page has several such forms.
    #[prop(optional, into)]
    of: String,
    /// Its id, for controls that lie outside.
    #[prop(optional, into)]
    id: Option<String>,
    /// Its class.
    #[prop(optional)]
    class: Option<&'static str>,
    /// Its fields and its button.
    children: Children,
) -> impl IntoView {
    let send = move |event: SubmitEvent| act.send(&event, of.clone());
    view! {
        <form id=id class=class method="post" action=act.url on:submit=send>
            {children()}
        </form>
    }
    .into_any()
}

/// The fields of a form as the browser would send them.
pub(crate) fn fields_of(event: &SubmitEvent) -> Option<String> {
    let data = leptos::form::form_data_from_event(event).ok()?;
    let fields = web_sys::UrlSearchParams::new_with_str_sequence_sequence(&data).ok()?;
    Some(fields.to_string().into())
}

/// The button of a form: while the form is under way it says so and can't be pressed.
#[component]
pub(crate) fn SubmitButton(
    /// What the form does.
    act: Act,
    /// Its label.
    label: &'static str,
    /// Its label while the form is under way.
    waiting: &'static str,
    /// Its class.
    #[prop(default = "button button-primary")]
    class: &'static str,
) -> impl IntoView {
    view! {
        <button class=class disabled=move || act.is_pending()>
            {move || if act.is_pending() { waiting } else { label }}
        </button>
    }
    .into_any()
}

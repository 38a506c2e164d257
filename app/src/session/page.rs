//! `/admin/login`.

use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::api::SignIn;
use crate::app::{LanguageSwitch, Mark};
use crate::frame::Frame;
use crate::port::PortError;
use crate::ui::form::Act;
use crate::ui::notice::{FormProblem, Problem};
use crate::ui::text::use_text;

/// Name and password. A plain form: whoever signs in gets pages rendered for them.
#[component]
pub(crate) fn LoginPage() -> impl IntoView {
    let t = use_text();
    let frame = expect_context::<Frame>();
    let next = use_query_map().with_untracked(|query| query.get("next"));
    // Only to read what the last try came to: it is in the URL that the server sent us back to.
    let last_try = Act::of::<SignIn>();
    let sending = RwSignal::new(false);
    let label = move || {
        if sending.get() { t.session.signing_in } else { t.session.sign_in }
    };
    let wrong_address = frame
        .wrong_address
        .map(|expected| view! { <Problem error=PortError::WrongAddress { expected }/> }.into_any());
    view! {
        <Title text=t.session.title/>
        <main class="login">
            <form class="panel" method="post" action=SignIn::url() on:submit=move |_| sending.set(true)>
                <h1>
                    <Mark/>
                    {t.common.product}
                </h1>
                <p class="muted">{t.session.lead}</p>
                {wrong_address}
                <FormProblem act=last_try/>
                {next.map(|next| view! { <input type="hidden" name="next" value=next/> }.into_any())}
                <label for="name">{t.session.name}</label>
                <input id="name" name="name" autocomplete="username" required autofocus/>
                <label for="password">{t.session.password}</label>
                <input id="password" name="password" type="password" autocomplete="current-password" required/>
                <button class="button button-primary" disabled=move || sending.get()>
                    {move || label()}
                </button>
                <p class="muted small">{t.session.no_operator}</p>
            </form>
            <LanguageSwitch/>
        </main>
    }
    .into_any()
}

//! What a page says when it has nothing to show, can't show it, or shows old data.

use leptos::prelude::*;

use super::form::Act;
use super::format;
use super::icon::{Glyph, Icon};
use super::text::use_text;
use super::when::when;
use crate::port::PortError;

/// Nothing here yet, and what to do about it.
#[component]
pub(crate) fn Empty(
    /// What is missing.
    title: &'static str,
    /// The next step.
    #[prop(optional)]
    next: Option<&'static str>,
) -> impl IntoView {
    view! {
        <div class="empty">
            <p class="empty-title">{title}</p>
            {next.map(|next| view! { <p>{next}</p> }.into_any())}
        </div>
    }
}

/// Why something could not be shown.
#[component]
pub(crate) fn Problem(
    /// What went wrong.
    error: PortError,
) -> impl IntoView {
    let t = use_text();
    let sign_in = matches!(error, PortError::Unauthorized)
        .then(|| view! { <a href="/admin/login" rel="external">{t.common.sign_in_again}</a> }.into_any());
    view! {
        <div class="notice notice-bad" role="alert">
            <Icon glyph=Glyph::Warning/>
            <p>{(t.common.error)(&error)} " " {sign_in}</p>
        </div>
    }
}

/// Why the form above or below could not be carried out, once it could not.
#[component]
pub(crate) fn FormProblem(
    /// What the form does.
    act: Act,
) -> impl IntoView {
    view! { {move || act.problem().map(|error| view! { <Problem error/> }.into_any())} }.into_any()
}

/// How old the data is, while the server can't be reached.
#[component]
pub(crate) fn ConnectionBanner(
    /// Of the poll.
    trouble: RwSignal<Option<PortError>>,
    /// Of the poll.
    age: RwSignal<u32>,
) -> impl IntoView {
    let t = use_text();
    let ended = move || trouble.with(|trouble| matches!(trouble, Some(PortError::Unauthorized)));
    let lost = move || trouble.with(|trouble| trouble.is_some()) && !ended();
    let ended_banner = when(ended, move || {
        view! {
            <div class="banner" role="alert">
                <Icon glyph=Glyph::Warning/>
                <p>{t.common.ended} " " <a href="/admin/login" rel="external">{t.common.sign_in_again}</a></p>
            </div>
        }
        .into_any()
    });
    let lost_banner = when(lost, move || {
        view! {
            <div class="banner" role="status">
                <Icon glyph=Glyph::Warning/>
                <p>
                    {move || (t.common.lost)(&format::seconds(i64::from(age.get())))} " " {t.common.lost_retry}
                </p>
            </div>
        }
        .into_any()
    });
    view! {
        {ended_banner}
        {lost_banner}
    }
    .into_any()
}

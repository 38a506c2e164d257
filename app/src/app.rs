//! Routes, and the layout around every page but login.

use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos_meta::{Title, provide_meta_context};
use leptos_router::components::{A, FlatRoutes, Route, Router};
use leptos_router::{SsrMode, path};

use crate::accounts::page::AccountsPage;
use crate::frame::Frame;
use crate::pools::page::PoolsPage;
use crate::session::api::{Role, SetLanguage, SignOut, SignOutEverywhere};
use crate::session::page::LoginPage;
use crate::tasks::detail::TaskPage;
use crate::tasks::page::TasksPage;
use crate::ui::icon::{Glyph, Icon};
use crate::ui::text::{Language, use_text};
use crate::ui::toast::{ToastRegion, Toasts};

/// The console. Every page is rendered whole before it is sent, so that it can be read, and its
/// forms used, before the bundle arrives or without it.
#[component]
pub fn App() -> AnyView {
    provide_meta_context();
    let frame = SharedValue::new(|| use_context::<Frame>().unwrap_or_default()).into_inner();
    provide_context(frame);
    provide_context(Toasts::new());
    let t = use_text();
    // Browser tests wait for this before they click.
    Effect::new(|| {
        if let Some(body) = document().body() {
            let _ = body.set_attribute("data-hydrated", "");
        }
    });
    view! {
        <Title formatter=move |title| format!("{title} · {}", t.common.product) text=t.common.product/>
        <Router>
            <Layout>
                <FlatRoutes fallback=NotFound>
                    <Route path=path!("/admin/login") view=LoginPage ssr=SsrMode::Async/>
                    <Route path=path!("/admin/model-pools") view=PoolsPage ssr=SsrMode::Async/>
                    <Route path=path!("/admin/api-accounts") view=AccountsPage ssr=SsrMode::Async/>
                    <Route path=path!("/admin/tasks") view=TasksPage ssr=SsrMode::Async/>
                    <Route path=path!("/admin/tasks/:id") view=TaskPage ssr=SsrMode::Async/>
                    <Route path=path!("/admin/*any") view=NotFound ssr=SsrMode::Async/>
                </FlatRoutes>
            </Layout>
        </Router>
        <ToastRegion/>
    }
    .into_any()
}

/// Navigation on the left, the page beside it; nothing around the login page. Who signs in or out
/// loads the page anew, so that this is decided once.
#[component]
fn Layout(children: Children) -> impl IntoView {
    let t = use_text();
    let frame = expect_context::<Frame>();
    if frame.operator.is_none() {
        return children().into_any();
    }
    let pages = [
        ("/admin/model-pools", Glyph::Pools, t.pools.title),
        ("/admin/api-accounts", Glyph::Key, t.accounts.title),
        ("/admin/tasks", Glyph::List, t.tasks.title),
    ];
    let links = pages
        .into_iter()
        .map(|(href, glyph, title)| {
            view! {
                <li>
                    <A href=href>
                        <Icon glyph/>
                        {title}
                    </A>
                </li>
            }
            .into_any()
        })
        .collect_view();
    let viewer_note = frame
        .operator
        .as_ref()
        .filter(|operator| operator.role == Role::Viewer)
        .map(|_| view! { <p class="notice">{t.common.viewer_note}</p> }.into_any());
    view! {
        <a class="skip" href="#content">
            {t.common.skip}
        </a>
        <div class="layout">
            <header class="rail">
                <a class="product" href="/admin/model-pools">
                    <Mark/>
                    {t.common.product}
                </a>
                <nav aria-label=t.common.navigation>
                    <ul>{links}</ul>
                </nav>
                <Standing frame/>
            </header>
            <main id="content" tabindex="-1">
                {viewer_note}
                {children()}
            </main>
        </div>
    }
    .into_any()
}

/// Who is signed in, the zone and the language. Plain forms: each changes who or what the page is
/// for, so that it is loaded anew.
#[component]
fn Standing(frame: Frame) -> impl IntoView {
    let t = use_text();
    let operator = frame.operator.map(|operator| {
        let role = match operator.role {
            Role::Admin => t.common.admin,
            Role::Viewer => t.common.viewer,
        };
        view! {
            <p class="operator">
                <strong>{operator.name}</strong>
                " "
                <span class="muted">{role}</span>
            </p>
            <form method="post" action=SignOut::url()>
                <button class="link">{t.common.sign_out}</button>
            </form>
            <form method="post" action=SignOutEverywhere::url()>
                <button class="link">{t.common.sign_out_everywhere}</button>
            </form>
        }
        .into_any()
    });
    view! {
        <div class="standing">
            <p class="muted zone">{(t.common.zone)(&frame.zone)}</p>
            <LanguageSwitch/>
            {operator}
        </div>
    }
}

/// A button for each language but the present one.
#[component]
pub(crate) fn LanguageSwitch() -> impl IntoView {
    let t = use_text();
    let present = expect_context::<Frame>().language;
    let others = Language::ALL
        .into_iter()
        .filter(|language| *language != present)
        .map(|language| {
            view! {
                <button class="link" name="tag" value=language.tag() lang=language.tag()>
                    {language.own_name()}
                </button>
            }
            .into_any()
        })
        .collect_view();
    view! {
        <form method="post" action=SetLanguage::url() aria-label=t.common.language>
            {others}
        </form>
    }
}

/// The mark: a gate over water.
#[component]
pub(crate) fn Mark() -> impl IntoView {
    view! {
        <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
            <rect class="mark-ground" width="24" height="24" rx="5"></rect>
            <path d="M6 5v8M12 5v8M18 5v8"></path>
            <path class="mark-water" d="M3.5 17c2.8-2 5.7-2 8.5 0s5.7 2 8.5 0"></path>
        </svg>
    }
}

/// No such page: said with the right status.
#[component]
fn NotFound() -> impl IntoView {
    let t = use_text();
    #[cfg(feature = "ssr")]
    if let Some(response) = use_context::<leptos_axum::ResponseOptions>() {
        response.set_status(http::StatusCode::NOT_FOUND);
    }
    view! {
        <Title text=t.common.not_found_title/>
        <div class="empty">
            <h1 class="empty-title">{t.common.not_found_title}</h1>
            <p>{t.common.not_found}</p>
            <p>
                <a href="/admin/model-pools">{t.common.to_pools}</a>
            </p>
        </div>
    }
    .into_any()
}

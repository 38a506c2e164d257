//! Login, logout, language, and who is signed in.

use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::port::PortError;
use crate::secret::Secret;

#[cfg(feature = "ssr")]
use {
    super::port::SessionPort,
    crate::port::Presence,
    crate::ui::text::Language,
    http::{HeaderValue, StatusCode, header, request::Parts},
    leptos_axum::ResponseOptions,
    std::sync::Arc,
};

/// What an operator may do. Ordered: an admin may do all that a viewer may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads everything, changes nothing.
    Viewer,
    /// Reads and changes everything.
    Admin,
}

/// A person signed in to the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The name used at login.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// Signs in and goes on to `next`, a page of the console.
#[server]
pub async fn sign_in(name: String, password: Secret, next: Option<String>) -> Result<(), PortError> {
    let (sessions, parts) = sessions()?;
    if let Err(error) = sessions.sign_in(&parts, name.trim(), &password).await {
        // A form is led back to its page, which a status of its own would prevent.
        if !accepts_pages(&parts) {
            expect_context::<ResponseOptions>().set_status(status_of(&error));
        }
        return Err(error);
    }
    leptos_axum::redirect(own_page(next.as_deref()));
    Ok(())
}

/// Ends this session.
#[server]
pub async fn sign_out() -> Result<(), PortError> {
    let (sessions, parts) = sessions()?;
    sessions.sign_out(&parts).await?;
    leptos_axum::redirect("/admin/login");
    Ok(())
}

/// Ends every session of this operator.
#[server]
pub async fn sign_out_everywhere() -> Result<(), PortError> {
    let operator = authorise(Role::Viewer, Presence::Acting).await?;
    let (sessions, parts) = sessions()?;
    sessions.sign_out_everywhere(&parts, &operator).await?;
    leptos_axum::redirect("/admin/login");
    Ok(())
}

/// Keeps a choice of language in a cookie. Open to everyone: the login page offers it too.
#[server]
pub async fn set_language(tag: String) -> Result<(), PortError> {
    let language = Language::of_tag(&tag).ok_or_else(|| PortError::invalid("tag", "en or zh-CN"))?;
    let cookie = format!(
        "{}={}; Path=/admin; Max-Age=31536000; HttpOnly; SameSite=Lax",
        Language::COOKIE,
        language.tag()
    );
    let cookie = HeaderValue::from_str(&cookie).map_err(|error| PortError::unavailable(error.to_string()))?;
    expect_context::<ResponseOptions>().append_header(header::SET_COOKIE, cookie);
    Ok(())
}

/// The operator of this request, if the role suffices. Every server function begins with this.
#[cfg(feature = "ssr")]
pub(crate) async fn authorise(least: Role, presence: Presence) -> Result<Operator, PortError> {
    let response = expect_context::<ResponseOptions>();
    let (sessions, parts) = sessions()?;
    let Some(operator) = sessions.current(&parts, presence).await? else {
        response.set_status(StatusCode::UNAUTHORIZED);
        return Err(PortError::Unauthorized);
    };
    if operator.role < least {
        response.set_status(StatusCode::FORBIDDEN);
        return Err(PortError::Forbidden);
    }
    Ok(operator)
}

#[cfg(feature = "ssr")]
fn accepts_pages(parts: &Parts) -> bool {
    parts
        .headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|a| a.contains("text/html"))
}

/// The status of a sign-in that failed.
#[cfg(feature = "ssr")]
const fn status_of(error: &PortError) -> StatusCode {
    match error {
        PortError::WrongPassword => StatusCode::UNAUTHORIZED,
        PortError::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
        PortError::WrongAddress { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(feature = "ssr")]
fn sessions() -> Result<(Arc<dyn SessionPort>, Parts), PortError> {
    let parts = use_context::<Parts>().ok_or_else(|| PortError::unavailable("no request"))?;
    Ok((expect_context(), parts))
}

/// `next`, if it leads to a page of this console and nowhere else.
#[cfg(feature = "ssr")]
fn own_page(next: Option<&str>) -> &str {
    next.filter(|next| {
        let rest = next.strip_prefix("/admin");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
            && !next.contains(['\\', '\r', '\n'])
            && !next.starts_with("/admin/login")
    })
    .unwrap_or("/admin/model-pools")
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[test]
    fn login_leads_to_pages_of_the_console_only() {
        assert_eq!(own_page(Some("/admin/tasks?status=failed")), "/admin/tasks?status=failed");
        for elsewhere in
            ["https://example.com", "//example.com", "/administrator", "/admin\\x", "/admin/login", ""]
        {
            assert_eq!(own_page(Some(elsewhere)), "/admin/model-pools", "{elsewhere}");
        }
        assert_eq!(own_page(None), "/admin/model-pools");
    }

    #[test]
    fn an_admin_may_do_what_a_viewer_may() {
        assert!(Role::Admin > Role::Viewer);
    }

    #[test]
    fn a_password_does_not_show_in_debug_output() {
        let sign_in = SignIn { name: "ada".into(), password: Secret::new("canary"), next: None };
        assert!(!format!("{sign_in:?}").contains("canary"));
    }
}

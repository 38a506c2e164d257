//! Who is asking: an operator's token, or the console's session.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use forebay_app::port::{PortError, PortFuture, Presence};
use forebay_app::secret::Secret;
use forebay_app::session::api::{Operator as Shown, Role as ShownRole};
use forebay_app::session::port::SessionPort;
use tower_sessions::Session;

use super::Admin;
use super::error::AdminError;
use crate::auth::{Operator, Role, sessions};
use crate::web::is_same_origin;

/// An operator who may read.
#[derive(Clone, Debug)]
pub(super) struct Viewer;

/// An operator who may change things.
#[derive(Clone, Debug)]
pub(super) struct Administrator {
    /// The name that the audit log gets.
    pub name: String,
}

impl FromRequestParts<Admin> for Viewer {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, AdminError> {
        admin.authorize(parts).await.map(|_| Self)
    }
}

impl FromRequestParts<Admin> for Administrator {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, AdminError> {
        let Operator { name, role } = admin.authorize(parts).await?;
        if role < Role::Admin {
            return Err(AdminError::Forbidden("a viewer may change nothing"));
        }
        Ok(Self { name })
    }
}

impl Admin {
    /// The operator of a request to the API. A session counts only for reads and for writes from our
    /// own pages; a token is no browser's own doing, and so needs no such check.
    async fn authorize(&self, parts: &Parts) -> Result<Operator, AdminError> {
        if let Some(token) = bearer(&parts.headers) {
            return self.operators.of_token(token).await?.ok_or(AdminError::Unauthorized);
        }
        let operator = self.session_operator(parts).await?.ok_or(AdminError::Unauthorized)?;
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        if !reads && !is_same_origin(&parts.headers, &self.public_url) {
            return Err(AdminError::Forbidden("this request does not come from a page of the console"));
        }
        Ok(operator)
    }

    async fn session_operator(&self, parts: &Parts) -> Result<Option<Operator>, AdminError> {
        let Some(session) = parts.extensions.get::<Session>() else {
            return Ok(None);
        };
        let failed = |error: tower_sessions::session::Error| AdminError::Unavailable(error.to_string());
        let Some(name) = sessions::signed_in(session).await.map_err(failed)? else {
            return Ok(None);
        };
        Ok(self.operators.named(&name).await?)
    }

    /// The client's address: the peer's, or what a trusted proxy says of it.
    fn client_address(&self, parts: &Parts) -> String {
        let peer = parts
            .extensions
            .get::<ConnectInfo<SocketAddr>>()
            .map(|ConnectInfo(peer)| peer.ip().to_canonical());
        let Some(peer) = peer else {
            return "unknown".to_owned();
        };
        let trusts = |address: &IpAddr| self.trusted_proxies.contains(address);
        if !trusts(&peer) {
            return peer.to_string();
        }
        let forwarded =
            parts.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<IpAddr> =
            forwarded.flat_map(|list| list.split(',')).filter_map(|hop| hop.trim().parse().ok()).collect();
        hops.into_iter().rev().find(|hop| !trusts(hop)).unwrap_or(peer).to_string()
    }

    async fn try_sign_in(&self, parts: &Parts, name: &str, secret: &Secret) -> Result<Shown, PortError> {
        if let Some(expected) = self.wrong_address(parts) {
            return Err(PortError::WrongAddress { expected });
        }
        let Some(session) = parts.extensions.get::<Session>() else {
            return Err(PortError::unavailable("sessions are not set up"));
        };
        let address = self.client_address(parts);
        if let Some(wait) = self.0.throttle.enter(name, &address, Instant::now()) {
            return Err(PortError::Throttled { wait_seconds: wait.as_secs().max(1) });
        }
        let known = self.operators.with_password(name, secret.expose()).await;
        let Some(operator) = known.map_err(AdminError::from)? else {
            tracing::warn!(%address, "a login failed");
            return Err(PortError::WrongPassword);
        };
        self.0.throttle.succeeded(&operator.name, &address);
        let failed = |error: tower_sessions::session::Error| PortError::unavailable(error.to_string());
        sessions::sign_in(session, &operator.name).await.map_err(failed)?;
        Ok(shown(operator))
    }
}

impl SessionPort for Admin {
    fn sign_in<'a>(&'a self, parts: &'a Parts, name: &'a str, password: &'a Secret) -> PortFuture<'a, Shown> {
        Box::pin(self.try_sign_in(parts, name, password))
    }

    fn sign_out<'a>(&'a self, parts: &'a Parts) -> PortFuture<'a, ()> {
        Box::pin(async move {
            if let Some(session) = parts.extensions.get::<Session>() {
                session.flush().await.map_err(|error| PortError::unavailable(error.to_string()))?;
            }
            Ok(())
        })
    }

    fn sign_out_everywhere<'a>(&'a self, parts: &'a Parts, operator: &'a Shown) -> PortFuture<'a, ()> {
        Box::pin(async move {
            self.operators.end_sessions(&operator.name).await.map_err(AdminError::from)?;
            self.sign_out(parts).await
        })
    }

    fn current<'a>(&'a self, parts: &'a Parts, presence: Presence) -> PortFuture<'a, Option<Shown>> {
        Box::pin(async move {
            let Some(operator) = self.session_operator(parts).await? else {
                return Ok(None);
            };
            if presence == Presence::Acting
                && let Some(session) = parts.extensions.get::<Session>()
            {
                sessions::touch(session).await.map_err(|error| PortError::unavailable(error.to_string()))?;
            }
            Ok(Some(shown(operator)))
        })
    }

    fn wrong_address(&self, parts: &Parts) -> Option<String> {
        // Only an https cookie is dropped, and only over http.
        if !self.public_url.starts_with("https://") {
            return None;
        }
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let origin = header("origin").filter(|origin| *origin != "null");
        let scheme =
            origin.and_then(|origin| origin.split("://").next()).or_else(|| header("x-forwarded-proto"));
        (scheme == Some("http")).then(|| self.public_url.clone())
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// As the console knows them.
fn shown(operator: Operator) -> Shown {
    let role = match operator.role {
        Role::Viewer => ShownRole::Viewer,
        Role::Admin => ShownRole::Admin,
    };
    Shown { name: operator.name, role }
}

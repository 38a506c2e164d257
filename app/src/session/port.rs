//! The port behind login: implemented in the server half on its session store.

use http::request::Parts;

use super::api::Operator;
use crate::port::{PortFuture, Presence};
use crate::secret::Secret;

/// Who is signed in. Every method gets the request's parts: the session (an extension), the
/// client's address (`ConnectInfo`, or a header of a trusted proxy) and `Origin` are found there.
pub trait SessionPort: Send + Sync + 'static {
    /// Checks name and password and binds the session to the operator under a new session id.
    ///
    /// # Errors
    /// `WrongPassword`; `Throttled` after too many tries; `WrongAddress` where the browser would
    /// drop the cookie because the request's scheme is not FOREBAY_PUBLIC_URL's.
    fn sign_in<'a>(
        &'a self,
        parts: &'a Parts,
        name: &'a str,
        password: &'a Secret,
    ) -> PortFuture<'a, Operator>;

    /// Ends this session. Not being signed in is no error.
    fn sign_out<'a>(&'a self, parts: &'a Parts) -> PortFuture<'a, ()>;

    /// Ends every session of the operator, this one too.
    fn sign_out_everywhere<'a>(&'a self, parts: &'a Parts, operator: &'a Operator) -> PortFuture<'a, ()>;

    /// The operator of this request. `Presence::Watching` must not extend the session.
    fn current<'a>(&'a self, parts: &'a Parts, presence: Presence) -> PortFuture<'a, Option<Operator>>;

    /// FOREBAY_PUBLIC_URL, when this request shows that the browser is somewhere else and would
    /// drop the cookie: the login page explains it instead of looping. `None` when all is well or
    /// when it can't be told.
    fn wrong_address(&self, parts: &Parts) -> Option<String>;
}

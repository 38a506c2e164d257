//! Who may do what: callers' and operators' tokens, passwords, sessions, roles, and the secrets that
//! open upstream keys.

mod operators;
pub mod password;
pub mod secrets;
pub mod sessions;
pub mod throttle;
pub mod tokens;

pub use operators::{Operator, Operators};
pub use secrets::{KeyRing, SecretsError};
pub use tokens::{Role, TokenHash};

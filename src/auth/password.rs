//! Passwords: Argon2id. Hashing takes tens of milliseconds and 19 MiB, so it runs apart from the
//! threads that serve.

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};

/// Shorter passwords are refused.
pub const SHORTEST: usize = 8;

/// A hash of no password: checked where there is no operator, so that a wrong name takes as long as a
/// wrong password.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$Zm9yZWJheWZvcmViYXk$\
                      u3jnpQ5Gf3mVBkGgYyZpE0mY3nS4o9xFZt3Q0kT7c1E";

/// Hashes a new password; `None` when it can't be hashed.
pub async fn hash(password: String) -> Option<String> {
    let hashed = tokio::task::spawn_blocking(move || {
        let salt = SaltString::generate(&mut OsRng);
        Argon2::default().hash_password(password.as_bytes(), &salt).ok().map(|hash| hash.to_string())
    });
    hashed.await.ok().flatten()
}

/// Whether `password` is the one of `hash`. Without a hash it takes as long and is never right.
pub async fn is_right(password: String, hash: Option<String>) -> bool {
    let checked = tokio::task::spawn_blocking(move || {
        let known = hash.is_some();
        let hash = hash.as_deref().unwrap_or(NOBODY);
        let right = PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        known && right
    });
    checked.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_password_is_right() {
        let hash = hash("correct horse".into()).await.expect("it can be hashed");
        assert!(hash.starts_with("$argon2id$"));
        assert!(is_right("correct horse".into(), Some(hash.clone())).await);
        assert!(!is_right("wrong horse".into(), Some(hash)).await);
        assert!(!is_right("anything".into(), None).await);
        assert!(PasswordHash::new(NOBODY).is_ok(), "nobody's hash is checked like any other");
    }
}

//! Tokens: `fb_…` of callers and `fba_…` of operators. Only their SHA-256 is kept: a token has 256
//! random bits, so a hash needs no salt, and finding it in a map takes no secret-dependent time.

use std::fmt::Write;

use aes_gcm::aead::OsRng;
use aes_gcm::aead::rand_core::RngCore;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// What a caller's token begins with.
pub const CALLER: &str = "fb_";
/// What an operator's token begins with.
pub const OPERATOR: &str = "fba_";

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A new token. It is shown once; `Debug` does not show it.
pub struct NewToken {
    /// The token itself.
    pub token: String,
    /// What is shown of it afterwards.
    pub prefix: String,
    /// What is kept of it, in hexadecimal.
    pub hash: String,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl NewToken {
    /// A random token that begins with [`CALLER`] or [`OPERATOR`].
    pub fn random(kind: &'static str) -> Self {
        let mut bytes = [0_u8; 32];
        OsRng.fill_bytes(&mut bytes);
        let token = format!("{kind}{}", URL_SAFE_NO_PAD.encode(bytes));
        let prefix = token.chars().take(kind.len() + 6).collect();
        let hash = hex(&hash(&token));
        Self { token, prefix, hash }
    }
}

/// The hash of a token as it was sent.
pub fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// A hash as the tables keep it.
pub fn hex(hash: &TokenHash) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A hash from its text in a table.
pub fn unhex(text: &str) -> Option<TokenHash> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (n, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * n..2 * n + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// What an operator may do; an admin may do all that a viewer may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads everything, changes nothing.
    Viewer,
    /// Reads and changes everything.
    Admin,
}

impl Role {
    /// The word in tables and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = forebay_engine::policy::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "admin" => Ok(Self::Admin),
            "viewer" => Ok(Self::Viewer),
            _ => Err(forebay_engine::policy::Invalid("must be admin or viewer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_hash_alone() {
        let new = NewToken::random(CALLER);
        assert!(new.token.starts_with("fb_") && new.token.len() > 40);
        assert!(new.token.starts_with(&new.prefix) && new.prefix.len() == 9);
        assert_eq!(unhex(&new.hash), Some(hash(&new.token)));
        assert!(!format!("{new:?}").contains(&new.token));
        assert_eq!(unhex("zz"), None);
    }
}

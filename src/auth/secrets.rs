//! Sealing of upstream keys: AES-256-GCM, a fresh random nonce, and the place of the row as
//! associated data, so that a sealed key copied to another row does not open there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aes_gcm::aead::{Aead, AeadCore, KeyInit, OsRng, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;

use crate::store::{Store, make_private_file};

const NONCE_BYTES: usize = 12;

/// Why the key ring could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// FOREBAY_MASTER_KEYS can't be read; its text is not repeated.
    #[error("FOREBAY_MASTER_KEYS must be 1:base64,2:base64 with 32 bytes each; entry {0} is not")]
    Malformed(usize),
    /// On PostgreSQL several nodes share the keys, so none of them may make its own.
    #[error(
        "FOREBAY_MASTER_KEYS is required with PostgreSQL; make one with: echo \"1:$(openssl rand -base64 32)\""
    )]
    Required,
    /// The key file can't be read or made.
    #[error("the key file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// A sealed text could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotOpen {
    /// The key ring lacks the version.
    #[error("master key {0} is not in FOREBAY_MASTER_KEYS")]
    NoSuchKey(i64),
    /// It was sealed with another key, for another row, or was damaged.
    #[error("it does not open with the master key: enter the key again")]
    Damaged,
}

/// The master keys: the highest version seals, all open.
#[derive(Clone)]
pub struct KeyRing {
    keys: Arc<BTreeMap<i64, Aes256Gcm>>,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRing").field("versions", &self.keys.keys()).finish()
    }
}

/// The place of a sealed text.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The table.
    pub table: &'static str,
    /// The row's id.
    pub row: &'a str,
    /// The column.
    pub column: &'a str,
}

impl Place<'_> {
    fn associated_data(self) -> String {
        format!("{}\0{}\0{}", self.table, self.row, self.column)
    }
}

impl KeyRing {
    /// From FOREBAY_MASTER_KEYS, else from the key file next to the SQLite file, which is made (0600)
    /// when it is not there.
    ///
    /// # Errors
    /// When the variable can't be read, is missing on PostgreSQL, or the file can't be made.
    pub fn load(master_keys: Option<&str>, store: &Store) -> Result<Self, SecretsError> {
        match (master_keys.filter(|keys| !keys.trim().is_empty()), store.sqlite_file()) {
            (Some(keys), _) => Self::parse(keys),
            (None, Some(database)) => Self::from_file(&database.with_extension("key")),
            (None, None) if store.dialect() == crate::store::Dialect::Sqlite => Ok(Self::random()),
            (None, None) => Err(SecretsError::Required),
        }
    }

    /// From `1:base64,2:base64`.
    ///
    /// # Errors
    /// When an entry is no version and 32 bytes.
    pub fn parse(text: &str) -> Result<Self, SecretsError> {
        let mut keys = BTreeMap::new();
        for (n, entry) in text.trim().split(',').enumerate() {
            let key = entry.trim().split_once(':').and_then(|(version, key)| {
                let version = version.trim().parse::<i64>().ok().filter(|version| *version > 0)?;
                let key = STANDARD.decode(key.trim()).ok()?;
                Some((version, Aes256Gcm::new_from_slice(&key).ok()?))
            });
            let (version, key) = key.ok_or(SecretsError::Malformed(n + 1))?;
            keys.insert(version, key);
        }
        Ok(Self { keys: Arc::new(keys) })
    }

    /// A key that lives as long as the process: for databases in memory.
    pub fn random() -> Self {
        let key = Aes256Gcm::new(&Aes256Gcm::generate_key(OsRng));
        Self { keys: Arc::new(BTreeMap::from([(1, key)])) }
    }

    fn from_file(path: &Path) -> Result<Self, SecretsError> {
        let failed = |source| SecretsError::File { path: path.to_owned(), source };
        match std::fs::read_to_string(path) {
            Ok(text) => return Self::parse(&text),
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let key = format!("1:{}\n", STANDARD.encode(Aes256Gcm::generate_key(OsRng)));
        match make_private_file(path) {
            Ok(mut file) => {
                file.write_all(key.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
                tracing::warn!(
                    file = %path.display(),
                    "made a master key; back this file up: without it no stored upstream key can be opened"
                );
                Self::parse(&key)
            }
            // Another process was quicker: its key counts.
            Err(there) if there.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::parse(&std::fs::read_to_string(path).map_err(failed)?)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The version of the key that seals.
    pub fn newest(&self) -> i64 {
        self.keys.last_key_value().map_or(0, |(version, _)| *version)
    }

    /// Seals `text` for its place; returns the sealed text and the version of the key.
    pub fn seal(&self, place: Place<'_>, text: &str) -> (String, i64) {
        let Some((version, key)) = self.keys.last_key_value() else {
            return (String::new(), 0);
        };
        let nonce = Aes256Gcm::generate_nonce(OsRng);
        let aad = place.associated_data();
        let payload = Payload { msg: text.as_bytes(), aad: aad.as_bytes() };
        // AES-GCM refuses only texts of 64 GiB and more.
        let sealed = key.encrypt(&nonce, payload).unwrap_or_default();
        let mut whole = nonce.to_vec();
        whole.extend(sealed);
        (STANDARD.encode(whole), *version)
    }

    /// Opens what [`KeyRing::seal`] sealed for the same place.
    ///
    /// # Errors
    /// When the version is not in the ring, or the text is not what was sealed there.
    pub fn open(&self, place: Place<'_>, sealed: &str, version: i64) -> Result<SecretString, CannotOpen> {
        let key = self.keys.get(&version).ok_or(CannotOpen::NoSuchKey(version))?;
        let whole = STANDARD.decode(sealed).map_err(|_| CannotOpen::Damaged)?;
        let (nonce, sealed) = whole.split_at_checked(NONCE_BYTES).ok_or(CannotOpen::Damaged)?;
        let aad = place.associated_data();
        let payload = Payload { msg: sealed, aad: aad.as_bytes() };
        let text = key.decrypt(Nonce::from_slice(nonce), payload).map_err(|_| CannotOpen::Damaged)?;
        String::from_utf8(text).map(SecretString::from).map_err(|_| CannotOpen::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn place(row: &str) -> Place<'_> {
        Place { table: "ai_model_api_accounts", row, column: "account_key" }
    }

    fn ring(versions: &[u8]) -> KeyRing {
        let keys: Vec<String> =
            versions.iter().map(|n| format!("{n}:{}", STANDARD.encode([*n; 32]))).collect();
        KeyRing::parse(&keys.join(",")).expect("these are keys")
    }

    #[test]
    fn what_is_sealed_opens_at_its_own_place_only() {
        let (sealed, version) = ring(&[1, 2]).seal(place("a"), "sk-secret");
        assert_eq!(version, 2, "the highest seals");
        assert!(!sealed.contains("sk-secret"));
        let open = |ring: &KeyRing, row: &str| {
            ring.open(place(row), &sealed, version).map(|key| key.expose_secret().to_owned())
        };
        assert_eq!(open(&ring(&[1, 2]), "a"), Ok("sk-secret".into()));
        assert_eq!(open(&ring(&[1, 2]), "b"), Err(CannotOpen::Damaged));
        assert_eq!(open(&ring(&[1]), "a"), Err(CannotOpen::NoSuchKey(2)));
        assert_ne!(ring(&[2]).seal(place("a"), "x").0, ring(&[2]).seal(place("a"), "x").0, "a fresh nonce");
    }

    #[test]
    fn a_wrong_ring_is_refused_without_repeating_it() {
        for wrong in ["", "1", "x:AAAA", "0:AAAA", "1:c2hvcnQ="] {
            let error = KeyRing::parse(wrong).expect_err("this is no ring").to_string();
            assert!(!error.contains("c2hvcnQ"), "{error}");
        }
    }
}

//! The console's sessions, on the table `sessions`: tower-sessions' store port, and who is signed in.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tower_sessions::cookie::SameSite;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::{Error, Result as StoreResult};
use tower_sessions::{Expiry, Session, SessionManagerLayer, SessionStore};

use super::tokens;
use crate::store::Store;

/// A session ends when its operator has done nothing for so long.
pub const IDLE: Duration = Duration::from_secs(12 * 3_600);
/// A session is written again at most this often while its operator acts.
const TOUCH_EVERY_MS: i64 = 60_000;
/// Expired sessions are deleted this often.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);

const OPERATOR: &str = "operator";
const TOUCHED: &str = "touched";

/// Sessions in the database.
#[derive(Clone, Debug)]
pub struct Sessions {
    store: Store,
}

/// The layer that gives every request its [`Session`]. `secure` marks the cookie for HTTPS only: use
/// it when FOREBAY_PUBLIC_URL is https. Deletes expired sessions every hour, as long as the runtime
/// lives.
pub fn layer(store: &Store, secure: bool) -> SessionManagerLayer<Sessions> {
    let sweeper = store.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TIDY_EVERY);
        loop {
            ticks.tick().await;
            if let Err(error) = sweeper.delete_expired_sessions().await {
                tracing::warn!(%error, "expired sessions could not be deleted");
            }
        }
    });
    SessionManagerLayer::new(Sessions { store: store.clone() })
        .with_name("forebay_session")
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_secure(secure)
        .with_path("/")
        .with_expiry(Expiry::OnInactivity(idle()))
}

fn idle() -> tower_sessions::cookie::time::Duration {
    tower_sessions::cookie::time::Duration::seconds(IDLE.as_secs() as i64)
}

/// Binds a session to an operator, under a new id.
///
/// # Errors
/// When the store fails.
pub async fn sign_in(session: &Session, operator: &str) -> Result<(), tower_sessions::session::Error> {
    session.cycle_id().await?;
    session.insert(OPERATOR, operator).await?;
    session.insert(TOUCHED, Store::now_ms()).await
}

/// The name of the operator of a session.
///
/// # Errors
/// When the store fails.
pub async fn signed_in(session: &Session) -> Result<Option<String>, tower_sessions::session::Error> {
    session.get(OPERATOR).await
}

/// The operator did something: the session lives on. A page's own polls are no such thing.
///
/// # Errors
/// When the store fails.
pub async fn touch(session: &Session) -> Result<(), tower_sessions::session::Error> {
    let now = Store::now_ms();
    let touched: i64 = session.get(TOUCHED).await?.unwrap_or_default();
    if now - touched > TOUCH_EVERY_MS {
        session.set_expiry(Some(Expiry::OnInactivity(idle())));
        session.insert(TOUCHED, now).await?;
    }
    Ok(())
}

impl Sessions {
    async fn write(&self, record: &Record) -> StoreResult<()> {
        let operator = record.data.get(OPERATOR).and_then(|name| name.as_str());
        let nameless = Record { id: Id(0), ..record.clone() };
        let data = serde_json::to_string(&nameless).map_err(|error| Error::Encode(error.to_string()))?;
        let expires_at = record.expiry_date.unix_timestamp().saturating_mul(1_000);
        let written = self.store.save_session(&hashed(record.id), operator, &data, expires_at).await;
        written.map_err(|error| Error::Backend(error.to_string()))
    }

    async fn read(&self, id: Id) -> StoreResult<Option<Record>> {
        let data =
            self.store.session(&hashed(id)).await.map_err(|error| Error::Backend(error.to_string()))?;
        let Some(data) = data else { return Ok(None) };
        let record: Record = serde_json::from_str(&data).map_err(|error| Error::Decode(error.to_string()))?;
        // The id is in no table: the cookie brought it.
        Ok(Some(Record { id, ..record }))
    }
}

fn hashed(id: Id) -> String {
    tokens::hex(&tokens::hash(&id.to_string()))
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + Send + 'a>>;

// What `#[async_trait]` would write, by hand: it is the port's only use of that crate here.
impl SessionStore for Sessions {
    fn create<'s, 'r, 'f>(&'s self, record: &'r mut Record) -> Boxed<'f, ()>
    where
        's: 'f,
        'r: 'f,
        Self: 'f,
    {
        // 128 random bits do not collide.
        Box::pin(self.write(record))
    }

    fn save<'s, 'r, 'f>(&'s self, record: &'r Record) -> Boxed<'f, ()>
    where
        's: 'f,
        'r: 'f,
        Self: 'f,
    {
        Box::pin(self.write(record))
    }

    fn load<'s, 'r, 'f>(&'s self, id: &'r Id) -> Boxed<'f, Option<Record>>
    where
        's: 'f,
        'r: 'f,
        Self: 'f,
    {
        Box::pin(self.read(*id))
    }

    fn delete<'s, 'r, 'f>(&'s self, id: &'r Id) -> Boxed<'f, ()>
    where
        's: 'f,
        'r: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let deleted = self.store.delete_session(&hashed(*id)).await;
            deleted.map_err(|error| Error::Backend(error.to_string()))
        })
    }
}

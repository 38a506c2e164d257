//! The settings of a process: flags, then FOREBAY_* variables, then forebay.toml, then defaults.
//!
//! What changes while a server runs (pools, limits, retries, …) is not here but in the database.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use serde::Deserialize;

/// Where the file is looked for unless FOREBAY_CONFIG names another.
const FILE: &str = "forebay.toml";

/// A setting that can't be what it is.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The settings file can't be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A value makes no sense.
    #[error("{name}: {remedy}")]
    Value {
        /// The setting, as its variable is called.
        name: &'static str,
        /// What it may be.
        remedy: String,
    },
}

/// The settings as flags, as variables, and as keys of forebay.toml: one name in three spellings.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sources {
    /// Where the server listens [127.0.0.1:8080]
    #[arg(long, env = "FOREBAY_ADDR", global = true, value_name = "HOST:PORT")]
    pub addr: Option<String>,
    /// sqlite:PATH or postgres://… [sqlite:{data-dir}/forebay.db]
    #[arg(long, env = "DATABASE_URL", global = true, value_name = "URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Reserved for state shared between nodes
    #[arg(long, env = "REDIS_URL", global = true, value_name = "URL", hide_env_values = true)]
    pub redis_url: Option<String>,
    /// The keys that seal secrets: 1:base64,2:base64 [a file in the data folder, with SQLite]
    #[arg(long, env = "FOREBAY_MASTER_KEYS", global = true, value_name = "KEYS", hide_env_values = true)]
    pub master_keys: Option<String>,
    /// Where the embedded database and the key file live [data]
    #[arg(long, env = "FOREBAY_DATA_DIR", global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The built console [site, beside the binary's target folder]
    #[arg(long, env = "FOREBAY_SITE_ROOT", global = true, value_name = "DIR")]
    pub site_root: Option<PathBuf>,
    /// The address that browsers use; decides cookie and origin [http://{addr}]
    #[arg(long, env = "FOREBAY_PUBLIC_URL", global = true, value_name = "URL")]
    pub public_url: Option<String>,
    /// Addresses of proxies whose X-Forwarded-For is believed, with commas between [none]
    #[arg(long, env = "FOREBAY_TRUSTED_PROXIES", global = true, value_name = "ADDRESSES")]
    pub trusted_proxies: Option<String>,
    /// The zone of days and of shown times [UTC]
    #[arg(long, env = "FOREBAY_TIME_ZONE", global = true, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// The bearer token of /metrics [loopback callers only]
    #[arg(long, env = "FOREBAY_METRICS_TOKEN", global = true, value_name = "TOKEN", hide_env_values = true)]
    pub metrics_token: Option<String>,
    /// full also survives power loss; slower [normal]
    #[arg(long, env = "FOREBAY_SQLITE_SYNC", global = true, value_name = "MODE")]
    pub sqlite_sync: Option<String>,
    /// text or json [text]
    #[arg(long, env = "FOREBAY_LOG", global = true, value_name = "FORMAT")]
    pub log: Option<String>,
}

/// The settings, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server listens.
    pub addr: SocketAddr,
    /// `sqlite:…` or `postgres://…`.
    pub database_url: String,
    /// Reserved for state shared between nodes.
    pub redis_url: Option<SecretString>,
    /// The keys that seal secrets, as they were given.
    pub master_keys: Option<SecretString>,
    /// Where the embedded database and the key file live.
    pub data_dir: PathBuf,
    /// The built console.
    pub site_root: PathBuf,
    /// The address that browsers use; `None` = where the server listens.
    pub public_url: Option<String>,
    /// Proxies whose X-Forwarded-For is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// The zone of days and of shown times.
    pub time_zone: TimeZone,
    /// The bearer token of /metrics.
    pub metrics_token: Option<SecretString>,
    /// SQLite's `synchronous`: FULL instead of NORMAL.
    pub sqlite_sync_full: bool,
    /// Logs as JSON.
    pub log_json: bool,
}

impl Settings {
    /// Reads what `flags` (flags and variables) leave open from forebay.toml, and checks all of it.
    pub fn read(flags: Sources) -> Result<Self, ConfigError> {
        let named = std::env::var_os("FOREBAY_CONFIG").map(PathBuf::from);
        let file = match &named {
            Some(path) => read_file(path)?,
            None if Path::new(FILE).exists() => read_file(Path::new(FILE))?,
            None => Sources::default(),
        };
        Self::check(flags.over(file))
    }

    /// Checks settings; what is absent gets its default.
    pub fn check(sources: Sources) -> Result<Self, ConfigError> {
        let addr = match sources.addr.as_deref() {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            Some(text) => {
                address(text).ok_or_else(|| wrong("FOREBAY_ADDR", "must be like 127.0.0.1:8080"))?
            }
        };
        let data_dir = sources.data_dir.unwrap_or_else(|| "data".into());
        let public_url = match sources.public_url {
            None => None,
            Some(url) => Some(origin(&url).ok_or_else(|| {
                wrong("FOREBAY_PUBLIC_URL", "must be http:// or https:// and a host, without a path")
            })?),
        };
        let time_zone = match sources.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| {
                wrong("FOREBAY_TIME_ZONE", "must be a zone's name, such as UTC or Asia/Shanghai")
            })?,
        };
        let trusted_proxies = sources
            .trusted_proxies
            .iter()
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(|text| {
                text.parse()
                    .map_err(|_| wrong("FOREBAY_TRUSTED_PROXIES", "must be IP addresses with commas between"))
            })
            .collect::<Result<_, _>>()?;
        let one_of = |name, value: Option<&str>, plain: &str, other: &str| match value {
            None => Ok(false),
            Some(value) if value == plain => Ok(false),
            Some(value) if value == other => Ok(true),
            Some(_) => Err(wrong(name, &format!("must be {plain} or {other}"))),
        };
        Ok(Self {
            addr,
            database_url: sources
                .database_url
                .unwrap_or_else(|| format!("sqlite:{}", data_dir.join("forebay.db").display())),
            redis_url: sources.redis_url.map(SecretString::from),
            master_keys: sources.master_keys.map(SecretString::from),
            site_root: sources.site_root.unwrap_or_else(default_site_root),
            public_url,
            trusted_proxies,
            time_zone,
            metrics_token: sources.metrics_token.map(SecretString::from),
            sqlite_sync_full: one_of(
                "FOREBAY_SQLITE_SYNC",
                sources.sqlite_sync.as_deref(),
                "normal",
                "full",
            )?,
            log_json: one_of("FOREBAY_LOG", sources.log.as_deref(), "text", "json")?,
            data_dir,
        })
    }
}

impl Sources {
    /// These, and where one is absent or empty, those of `under`.
    fn over(self, under: Self) -> Self {
        let text =
            |over: Option<String>, under: Option<String>| over.filter(|text| !text.is_empty()).or(under);
        Self {
            addr: text(self.addr, under.addr),
            database_url: text(self.database_url, under.database_url),
            redis_url: text(self.redis_url, under.redis_url),
            master_keys: text(self.master_keys, under.master_keys),
            data_dir: self.data_dir.or(under.data_dir),
            site_root: self.site_root.or(under.site_root),
            public_url: text(self.public_url, under.public_url),
            trusted_proxies: text(self.trusted_proxies, under.trusted_proxies),
            time_zone: text(self.time_zone, under.time_zone),
            metrics_token: text(self.metrics_token, under.metrics_token),
            sqlite_sync: text(self.sqlite_sync, under.sqlite_sync),
            log: text(self.log, under.log),
        }
    }
}

fn wrong(name: &'static str, remedy: &str) -> ConfigError {
    ConfigError::Value { name, remedy: remedy.to_owned() }
}

fn read_file(path: &Path) -> Result<Sources, ConfigError> {
    let file = |reason: String| ConfigError::File { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
    // The parser's own text would repeat the line, and with it a secret.
    toml::from_str(&text).map_err(|error| file(error.message().to_owned()))
}

fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let port = text.strip_prefix("localhost:")?.parse().ok()?;
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    })
}

fn origin(url: &str) -> Option<String> {
    let url = url.trim_end_matches('/');
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let fits =
        !host.is_empty() && !host.contains(['/', '?', '#', '@']) && !host.contains(char::is_whitespace);
    fits.then(|| url.to_ascii_lowercase())
}

/// `target/site`, beside the `target/debug` or `target/release` that the binary is in.
fn default_site_root() -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("site"));
    match beside() {
        Some(site) if site.exists() => site,
        _ => "site".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Sources)) -> Result<Settings, String> {
        let mut sources = Sources::default();
        change(&mut sources);
        Settings::check(sources).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let settings = check(|_| ()).expect("the defaults are right");
        assert_eq!(settings.addr.to_string(), "127.0.0.1:8080");
        assert_eq!(settings.database_url, "sqlite:data/forebay.db");
        assert_eq!(settings.public_url, None, "where it listens");
    }

    #[test]
    fn a_wrong_value_is_named_with_what_it_may_be() {
        type Change = fn(&mut Sources);
        let cases: [(Change, &str); 6] = [
            (|sources| sources.addr = Some("8080".into()), "FOREBAY_ADDR"),
            (|sources| sources.public_url = Some("forebay.example".into()), "FOREBAY_PUBLIC_URL"),
            (|sources| sources.public_url = Some("https://x/admin".into()), "FOREBAY_PUBLIC_URL"),
            (|sources| sources.time_zone = Some("Mars/Base".into()), "FOREBAY_TIME_ZONE"),
            (|sources| sources.trusted_proxies = Some("10.0.0.1,x".into()), "FOREBAY_TRUSTED_PROXIES"),
            (|sources| sources.sqlite_sync = Some("off".into()), "FOREBAY_SQLITE_SYNC"),
        ];
        for (change, name) in cases {
            let error = check(change).expect_err(name);
            assert!(error.starts_with(name) && error.contains("must be"), "{error}");
        }
    }

    #[test]
    fn flags_and_variables_come_before_the_file_and_an_empty_one_does_not() {
        let file: Sources =
            toml::from_str("addr = '0.0.0.0:1'\ntime_zone = 'Asia/Shanghai'").expect("it parses");
        let flags =
            Sources { addr: Some("0.0.0.0:2".into()), time_zone: Some(String::new()), ..Sources::default() };
        let merged = flags.over(file);
        assert_eq!(
            (merged.addr.as_deref(), merged.time_zone.as_deref()),
            (Some("0.0.0.0:2"), Some("Asia/Shanghai"))
        );
        assert!(toml::from_str::<Sources>("adr = 'x'").is_err(), "an unknown key is refused");
    }
}

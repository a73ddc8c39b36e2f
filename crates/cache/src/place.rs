//! Location and limit of the user's cache, from the environment.

use std::ffi::OsStr;
use std::path::PathBuf;

use etcetera::BaseStrategy as _;

/// Default limit in bytes: 1 GiB.
pub(crate) const DEFAULT_LIMIT: u64 = 1 << 30;

/// The cache directory: that of `ELINVAR_CACHE`, else the user's. `None` when it is `off`.
pub(crate) fn folder(chosen: Option<&OsStr>) -> Option<PathBuf> {
    match chosen.filter(|chosen| !chosen.is_empty()) {
        Some(chosen) if chosen == "off" => None,
        Some(chosen) => Some(chosen.into()),
        None => Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("elinvar")),
    }
}

/// Parse `ELINVAR_CACHE_LIMIT`: bytes, or a number with suffix `K`, `M` or `G`.
pub(crate) fn limit(chosen: Option<&OsStr>) -> Result<u64, String> {
    let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) else { return Ok(DEFAULT_LIMIT) };
    let text = chosen.to_string_lossy();
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (&*text, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| {
        format!("ELINVAR_CACHE_LIMIT=`{text}` is not a number of bytes such as 1073741824, 512M or 2G")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders() {
        assert_eq!(folder(Some("off".as_ref())), None);
        assert_eq!(folder(Some("/a/b".as_ref())), Some("/a/b".into()));
        assert_eq!(folder(Some("".as_ref())), folder(None));
    }

    #[test]
    fn limits() {
        let limit = |text: &str| limit(Some(text.as_ref()));
        assert_eq!(limit(""), Ok(1_073_741_824), "the documented default of 1 GiB");
        assert_eq!(
            (limit("0"), limit("5K"), limit("3m"), limit("2G")),
            (Ok(0), Ok(5120), Ok(3 << 20), Ok(2 << 30))
        );
        for wrong in ["G", "-1", "1.5G", "18446744073709551615G", "ü"] {
            assert!(limit(wrong).unwrap_err().contains(wrong));
        }
    }
}

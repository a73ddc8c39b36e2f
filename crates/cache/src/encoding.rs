//! Encoding of records: postcard's wire format, without names or types.
//!
//! Decoding is total: bytes that end early, do not fit the type or continue after the value give `None`. It allocates no more
//! than the bytes can fill, up to serde's limit of 1 MiB per list.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encode a value. Never fails for this project's types, whose sequences know their length.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

/// Decode a value from a whole record.
pub fn decode<T: DeserializeOwned>(record: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(record).ok()?;
    rest.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Value = (Vec<u64>, String, Option<String>, Option<String>, Vec<u8>, bool);

    fn value() -> Value {
        (vec![0, 1, 127, 128, 300, u64::MAX], "größe".into(), Some("x".into()), None, vec![1, 255], true)
    }

    #[test]
    fn values_come_back() {
        assert_eq!(decode(&encode(&value())), Some(value()));
    }

    #[test]
    fn wrong_bytes_are_none() {
        let right = encode(&value());
        for end in 0..right.len() {
            assert_eq!(decode::<Value>(&right[..end]), None, "cut at {end}");
        }
        let longer = [&right[..], &[0]].concat();
        assert_eq!(decode::<Value>(&longer), None);
        assert_eq!(decode::<u64>(&[0xff; 10]), None);
        assert_eq!(decode::<bool>(&[2]), None);
        assert_eq!(decode::<String>(&[1, 0xff]), None, "not UTF-8");
    }

    #[test]
    fn a_length_beyond_the_record_is_none_and_reserves_nothing() {
        let huge = encode(&u64::MAX);
        assert_eq!(decode::<Vec<u64>>(&huge), None);
        assert_eq!(decode::<String>(&huge), None);
        assert_eq!(decode::<Vec<[u64; 4]>>(&encode(&(u64::MAX / 64))), None);
    }
}

//! `--constant NAME|INDEX=VALUE`: the values of function constants.

use elinvar_driver::{Constant, ConstantKey};

use crate::failure::{Failure, Result};
use crate::value::Value;

/// Parse the values of `--constant`.
pub fn parse(given: &[(String, String)]) -> Result<Vec<Constant>> {
    let one = |(key, text): &(String, String)| {
        let value = Value::parse(text).map_err(|failure| failure.at(&format!("--constant {key}={text}")))?;
        let Value::Number { scalar, bytes, .. } = value else {
            let what = "a function constant is a number or the components of a vector, as in `7u32`";
            return Err(Failure::usage(format!("--constant {key}={text}: {what}")));
        };
        let key = match key.parse::<u32>() {
            Ok(index) => ConstantKey::Index(index),
            Err(_) => ConstantKey::Name(key.clone()),
        };
        Ok(Constant { key, scalar, bytes })
    };
    given.iter().map(one).collect()
}

//! The classes of Foundation that Metal programs use, as Apple's [Foundation](https://developer.apple.com/documentation/foundation)
//! describes them: only those, and of each only the methods that are used.

mod array;
mod data;
mod dictionary;
mod error;
mod number;
mod process;
mod root;
mod string;
mod url;

pub use array::NsArray;
pub use data::NsData;
pub use dictionary::NsDictionary;
pub use error::NsError;
pub use number::NsNumber;
pub use process::os_version;
pub use string::NsString;
pub use url::NsUrl;

/// Register them; before any other class.
pub fn register() {
    crate::register(&[
        root::register,
        string::register,
        array::register,
        dictionary::register,
        number::register,
        data::register,
        url::register,
        error::register,
        process::register,
        crate::dispatch::register,
    ]);
}

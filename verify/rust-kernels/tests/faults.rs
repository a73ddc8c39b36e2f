//! What happens out of bounds and at an overflow, and which line messages name.

use elinvar::{Device, Error, Grid, Result};
use elinvar_rust_kernels::basics::{saxpy, saxpy_line};

#[test]
fn a_fault_names_the_line_of_the_rust_file() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let x = device.buffer_with_data(&[1.0f32; 4])?;
    let mut y = device.buffer_with_data(&[1.0f32; 8])?;
    let failure =
        saxpy.launch(&stream, Grid::threads(8), (&x, &mut y, 2.0))?.wait().expect_err("`x` is too short");
    let Error::Fault(fault) = &failure else { panic!("{failure}") };
    let location = fault.location.clone().unwrap_or_default();
    assert!(location.ends_with(&format!("basics.rs:{}", saxpy_line())), "{failure}");
    assert!(fault.message.contains("read of element 4 of argument 0 `x`"), "{failure}");
    Ok(())
}

#[test]
#[should_panic(expected = "index out of bounds: the len is 4 but the index is 4")]
fn the_host_panics_out_of_bounds() {
    saxpy.host(Grid::threads(8), (&[1.0; 4], &mut [1.0; 8], 2.0));
}

#[test]
fn a_compile_error_of_the_device_names_the_rust_file() -> Result<()> {
    let source =
        saxpy.bind((&Device::cpu()?.buffer::<f32>(1)?, &mut Device::cpu()?.buffer::<f32>(1)?, 1.0))?.source();
    let text = &source.files[0].text;
    assert!(text.contains("#line") && text.contains("basics.rs\""), "{text}");
    Ok(())
}

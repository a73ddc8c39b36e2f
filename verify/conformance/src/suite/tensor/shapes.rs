//! Views: slices, permutations, shapes and broadcasting.

use elinvar::Device;
use elinvar::tensor::{DataType, Map, TensorMut, TensorRef};

use super::super::CaseResult;
use super::{Layout, Near, Random, Stored, compute, indices};

cases! { "tensor": views, reshapes, views_of_random_slices }

fn views(device: &Device) -> CaseResult {
    let buffer = device.buffer::<f32>(24)?;
    let tensor = buffer.tensor(&[2, 3, 4])?;
    let shape = |view: &TensorRef<'_>| (view.shape().to_vec(), view.strides().to_vec());
    assert_eq!(shape(&tensor), (vec![2, 3, 4], vec![12, 4, 1]));
    assert_eq!((tensor.len(), tensor.rank(), tensor.is_contiguous()), (24, 3, true));
    assert_eq!(shape(&tensor.permute(&[2, 0, 1])?), (vec![4, 2, 3], vec![1, 12, 4]));
    assert_eq!(shape(&tensor.transpose(1, 2)?), (vec![2, 4, 3], vec![12, 1, 4]));
    assert_eq!(shape(&tensor.slice_step(2, 1..4, 2)?), (vec![2, 3, 2], vec![12, 4, 2]));
    assert_eq!(shape(&tensor.index(1, 2)?), (vec![2, 4], vec![12, 1]));
    assert_eq!(shape(&tensor.expand(1)?), (vec![2, 1, 3, 4], vec![12, 0, 4, 1]));
    assert_eq!(
        shape(&tensor.slice(0, 0..1)?.broadcast(&[5, 7, 3, 4])?),
        (vec![5, 7, 3, 4], vec![0, 0, 4, 1])
    );
    assert!(!tensor.slice(2, 0..3)?.is_contiguous() && tensor.slice(0, 1..2)?.is_contiguous());
    let empty = tensor.slice(1, 3..3)?;
    assert_eq!((empty.shape(), empty.len(), empty.is_empty()), (&[2, 0, 4][..], 0, true));
    assert_eq!(shape(&buffer.tensor(&[])?), (vec![], vec![]));
    // The elements of a window of three, which overlap.
    let windows = TensorRef::strided(&buffer, &[22, 3], &[1, 1], 0)?;
    assert_eq!(windows.len(), 66);
    Ok(())
}

fn reshapes(device: &Device) -> CaseResult {
    let buffer = device.buffer::<f32>(24)?;
    let tensor = buffer.tensor(&[2, 3, 4])?;
    let strides = |view: elinvar::Result<TensorRef<'_>>| view.map(|view| view.strides().to_vec());
    assert_eq!(strides(tensor.reshape(&[6, 4]))?, [4, 1]);
    assert_eq!(strides(tensor.reshape(&[2, 1, 12]))?, [12, 0, 1]);
    assert_eq!(strides(tensor.reshape(&[24]))?, [1]);
    // Rows of three of four elements: the first two axes are one, the last two are not.
    let part = tensor.slice(2, 0..3)?;
    assert_eq!(strides(part.reshape(&[6, 3]))?, [4, 1]);
    assert_eq!(strides(part.reshape(&[3, 2, 3]))?, [8, 4, 1]);
    assert!(part.reshape(&[2, 9]).is_err());
    assert!(tensor.transpose(0, 1)?.reshape(&[6, 4]).is_err());
    assert_eq!(strides(tensor.transpose(1, 2)?.reshape(&[2, 2, 2, 3]))?, [12, 2, 1, 4]);
    assert_eq!(tensor.slice(0, 0..0)?.reshape(&[0, 5])?.shape(), [0, 5]);
    Ok(())
}

/// Elements of random views are those that their strides say, and writes stay within a view.
fn views_of_random_slices(device: &Device) -> CaseResult {
    let mut random = Random::new(21);
    for rank in [1, 2, 3, 4, 6, 8] {
        let shape: Vec<usize> = (0..rank).map(|_| random.pick(&[1, 2, 3])).collect();
        let layout = Layout::random(rank, &mut random);
        let (x, values) = Stored::random(device, DataType::F32, &shape, layout, &mut random)?;
        let layout = Layout::random(rank, &mut random);
        let mut out = Stored::new(device, DataType::F32, &shape, layout, &[])?;
        compute(device, Map::COPY, &[&x], &mut [&mut out])?;
        out.expect("copy", |at| Near::exact(values[at]))?;
    }
    // A broadcast of a view that has an offset, to rows of another order.
    let values = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let buffer = device.buffer_with_data(&values)?;
    let mut out = device.buffer::<f32>(12)?;
    let row = buffer.tensor(&[2, 3])?.index(0, 1)?.broadcast(&[4, 3])?;
    let mut target: TensorMut<'_> = out.tensor_mut(&[3, 4])?.transpose(0, 1)?;
    device.stream()?.tensor(Map::COPY, &[&row], &mut [&mut target])?;
    let got = out.to_vec()?;
    for (at, index) in indices(&[3, 4]).enumerate() {
        assert_eq!(got[at], values[3 + index[0]]);
    }
    Ok(())
}

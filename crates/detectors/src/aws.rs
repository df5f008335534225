//! Detectors for Amazon Web Services.

pub(crate) mod beanstalk;
pub(crate) mod ec2;
pub(crate) mod ecs;
pub(crate) mod eks;
mod instance;
pub(crate) mod lambda;

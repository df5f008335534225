//! Delivery from a connector that buffers: what the next stage accepts counts as delivered.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::pipeline::account::Account;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, Next};

pub(super) fn counted(account: &Account, next: Arc<dyn Consumer>) -> Next {
    let account = account.clone();
    Next {
        consumer: Arc::new(Delivering {
            account: account.clone(),
            next,
        }),
        account,
    }
}

/// Counts emitted items as delivered once the next stage accepts them.
struct Delivering {
    account: Account,
    next: Arc<dyn Consumer>,
}

impl Consumer for Delivering {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let items = batch.items();
            self.next.consume(batch).await?;
            self.account.passed(items);
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }
}

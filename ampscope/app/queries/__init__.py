"""SQL over one training process of one trace, frames out. Down-samples in SQL; draws nothing."""

package webhook

// Mac signs what Sign refuses.
var Mac = mac

// Package netns reads and changes network namespaces over netlink. It implements
// attach.Links, and makes, enters and deletes named namespaces for multusctl try
// and for tests.
//
// It does not decide which routes a pod should have: that is the plan's, and the
// engine turns it into a RouteChange. It runs no external command.
//
// Work is done through netlink sockets that were opened inside the namespace, so
// that no thread of the program stays in it. Do is the exception, and throws its
// thread away.
package netns

// Not there yet.
export default null;
